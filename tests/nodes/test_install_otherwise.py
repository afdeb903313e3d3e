"""Installed without Helm; and twice in one cluster, for a namespace each."""

from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.nodes.installing import HOST, WAIT, apply_mixed, make_namespace, remove_kind
from tests.nodes.outside import as_user, lists, streamed
from tests.nodes.samples import MANIFESTS
from tests.nodes.seen import show
from tests.nodes.times import Times

INSTALL = f"--filename={MANIFESTS / 'install.yaml'}"
PLACES = {"quire-a": "team-a", "quire-b": "team-b"}
"""By an installation's namespace, the namespace that it serves."""
SMALL = ("--set=operator.replicas=1", "--set=gateway.replicas=1")


@pytest.fixture
def places(bare_cluster: Cluster) -> Iterator[None]:
    """Namespaces for two installations, and theirs."""
    names = [*PLACES, *PLACES.values()]
    for name in names:
        make_namespace(bare_cluster, name)
    yield
    bare_cluster.api.call("delete", "namespace", *names, "--timeout=110s")


def test_the_manifest_does_the_same(
    bare_cluster: Cluster, restricted: str, times: Times, capsys: pytest.CaptureFixture[str]
) -> None:
    with times.of("kubectl apply of install.yaml, until it is rolled out"):
        bare_cluster.api.call("apply", "--server-side", INSTALL)
        for role in ("operator", "gateway"):
            name = (f"deployment/quire-{role}", f"--namespace={SYSTEM}", "--timeout=110s")
            bare_cluster.api.call("rollout", "status", *name)

    apply_mixed(bare_cluster, restricted)
    assert streamed(bare_cluster, HOST, "llama3-8b")
    show(capsys, times.table())
    bare_cluster.api.call("delete", INSTALL, "--timeout=110s")


def test_two_installations_serve_a_namespace_each(
    bare_cluster: Cluster, helm: Helm, places: None
) -> None:
    flags = [f"--set=namespaces={{{team}}}" for team in PLACES.values()]
    helm.install(*WAIT, *SMALL, flags[0], namespace="quire-a")
    helm.install(*WAIT, *SMALL, flags[1], "--set=crds.enabled=false", namespace="quire-b")
    for team in PLACES.values():
        apply_mixed(bare_cluster, team, f"{team}.example.com", replicas=1)
        assert streamed(bare_cluster, f"{team}.example.com", "llama3-8b")

    helm.uninstall(namespace="quire-b")
    assert streamed(bare_cluster, "team-a.example.com", "llama3-8b")
    with as_user(bare_cluster, "team-b.example.com") as user:
        # its gateway answers until it has ended, as it does in an upgrade
        wait_until(lambda: not lists(user, "llama3-8b"), pause_seconds=0.5)
    helm.uninstall(namespace="quire-a")
    remove_kind(bare_cluster)
