"""Which service a name means at a host."""

from typing import Any

import pytest

from quire_gateway.serving.directory import Directory, Served
from tests.unit.gateway.builders import routing


class Known(Served):
    """A service of which there is its document alone."""

    def __init__(self, **fields: Any) -> None:
        self.document = routing(**fields)


def found(directory: Directory[Known], model: str, host: str) -> str | None:
    """Name of the service, if there is one."""
    one = directory.find(model, host)
    return one.document.name if one else None


@pytest.mark.parametrize("address", ["victim.t4.svc.cluster.local", "victim.t4.svc", "victim.t4"])
def test_no_ingress_takes_the_address_of_another_service(address: str) -> None:
    thief = Known(namespace="evil", name="thief", model_names=["thief", "victim"], host=address)
    victim = Known(namespace="t4", name="victim", model_names=["victim"])
    directory: Directory[Known] = Directory()
    directory.arrange({one.document.key: one for one in (thief, victim)})

    assert found(directory, "victim", address) == "victim"
    assert found(directory, "thief", "thief.evil.svc") == "thief"


def test_a_name_that_only_begins_like_an_address_is_a_host() -> None:
    own = Known(namespace="t4", name="own", model_names=["m"], host="victim.t4.svcs.example")
    victim = Known(namespace="t4", name="victim", model_names=["m"])
    directory: Directory[Known] = Directory()
    directory.arrange({one.document.key: one for one in (victim, own)})

    assert found(directory, "m", "victim.t4.svcs.example") == "own"
