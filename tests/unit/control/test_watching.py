"""How kopf is made to behave."""

from quire_operator.cluster.store import Store
from quire_operator.cluster.watching import Watching


def test_an_operator_whose_watches_have_failed_for_good_does_not_stay() -> None:
    watching = Watching(
        Store(),
        enqueue=lambda key: None,
        doubt=lambda key: None,
        namespaces=(),
        may_see_nodes=False,
        gateway=None,
        with_routes=False,
    )

    seconds = watching.settings().process.ultimate_exiting_timeout

    # kopf's own is ten minutes, in which a leader would renew its Lease and see nothing
    assert seconds is not None
    assert seconds <= 30
