"""An earlier quire is upgraded to this one while applications ask it.

The earlier one's kind has other rules, its engines no seals, its chart fewer values. Its gateways
and this one's serve side by side for a while, before engines of the earlier one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.quire_images import ENGINE
from quire_operator.resource.crd import NAME, crd
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.nodes.earlier import Earlier, why_there_is_none
from tests.nodes.installing import HOST, PUBLIC, WAIT, make_namespace, remove_kind
from tests.nodes.outside import streamed, way_in
from tests.nodes.seen import image_of, pods_of, show, uids
from tests.nodes.services import H100, L4, Body, Service, simulated
from tests.nodes.streams import Load
from tests.nodes.times import Times

_OBSTACLE = why_there_is_none()
ROLES = ("operator", "gateway")
QUESTION: Body = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "max_tokens": 40,
}
THIS = [f"--set={role}.image.tag=" for role in (*ROLES, "engine")]
"""The chart's own tags again."""
DRAIN_SECONDS = 120
"""Longer than an answer takes on a busy machine: none may be cut."""
SCHEMA: Body = crd()["spec"]["versions"][0]["schema"]

pytestmark = pytest.mark.skipif(_OBSTACLE is not None, reason=_OBSTACLE or "")


@pytest.fixture
def earlier(bare_cluster: Cluster, helm: Helm, tmp_path: Path, times: Times) -> Iterator[Cluster]:
    """With the earlier quire; afterwards nothing of either is left."""
    old = Earlier(tmp_path)
    old.unpack()
    with times.of("earlier images built, or found, and loaded"):
        for archive in old.archives():
            bare_cluster.real.load_image(archive)
    make_namespace(bare_cluster, SYSTEM)
    with times.of("helm install --wait of the earlier chart"):
        helm.install(*WAIT, *old.values, chart=old.chart)
    yield bare_cluster
    helm.uninstall()
    remove_kind(bare_cluster)
    bare_cluster.api.call("delete", "namespace", SYSTEM, "--timeout=110s")


def test_nothing_is_lost_and_engines_stay(
    earlier: Cluster,
    helm: Helm,
    restricted: str,
    times: Times,
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = Service(earlier, restricted)
    accelerators, engine = (simulated(L4), simulated(H100)), {"drainSeconds": DRAIN_SECONDS}
    service.apply(*accelerators, replicas=2, engine=engine, **PUBLIC)
    service.wait_for("Ready", "True")
    streamed(earlier, HOST, "chat")
    engines, old = uids(service.pods()), programs(earlier)
    assert schema_in(earlier) != SCHEMA

    said = helm.refusal(*WAIT, "--reuse-values", *THIS)
    assert "say --reset-then-reuse-values" in said
    with Load(way_in(earlier, HOST), QUESTION) as load:
        with times.of("helm upgrade --wait under load"):
            helm.install(*WAIT, "--reset-then-reuse-values", *THIS)
        with times.of("then, until the last old gateway has ended"):
            service.wait(lambda: not old & programs(earlier), "all are this one's")
        load.wait_for_more()
    with Load(way_in(earlier, HOST), QUESTION) as restarting:
        assert uids(service.pods()) == engines  # what a newer operator would make otherwise waits
        with times.of("engines restarted as asked, under load"):
            restart(service)
            service.wait(lambda: not engines & uids(service.pods()), "engines are this one's")
            service.wait_for("Ready", "True")
        restarting.wait_for_more()

    show(capsys, load.table("an earlier quire is upgraded"))
    show(capsys, restarting.table("and then its engines"))
    show(capsys, times.table())
    assert load.failures == restarting.failures == []
    assert schema_in(earlier) == SCHEMA
    assert {image_of(pod) for pod in service.pods()} == {ENGINE}


def programs(cluster: Cluster) -> set[str]:
    """Operators and gateways."""
    return {uid for role in ROLES for uid in uids(pods_of(cluster, role))}


def schema_in(cluster: Cluster) -> Body:
    """The kind's, as the cluster has it."""
    kind = cluster.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}")
    schema: Body = kind["spec"]["versions"][0]["schema"]
    return schema


def restart(service: Service) -> None:
    """Ask for new engines, as docs/install.md says."""
    stamp = "serving.quire.dev/restarted-at=2026-11-29"
    here = f"--namespace={service.namespace}"
    service.cluster.api.call("annotate", "qis", service.name, stamp, "--overwrite", here)
