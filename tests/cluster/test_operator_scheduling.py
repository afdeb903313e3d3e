"""Why there is no node, in the words of a real scheduler, as users read it in the status."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.gpu_nodes import MODELS
from quire_operator.planner.observed import pod_from
from tests.api.servers import wait_until
from tests.cluster.operators import RunningOperator, install, uninstall
from tests.cluster.services import Body, get, make

PRODUCT = MODELS[0].product
TOLERANT = {"tolerations": [{"operator": "Exists"}]}
GPU: Body = {"name": "gpu", "products": [PRODUCT], "pod": TOLERANT}
CPU: Body = {"name": "cpu", "pod": TOLERANT}


@pytest.fixture(scope="module")
def operator(
    kwok_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningOperator]:
    log = tmp_path_factory.mktemp("scheduling") / "operator.log"
    with RunningOperator(install(kwok_cluster), log, "--lease-seconds=3") as one:
        yield one
    uninstall(kwok_cluster)


CASES: list[tuple[str, Body, dict[str, Any], str, str]] = [
    ("tainted", {"name": "gpu", "products": [PRODUCT]}, {}, "UntoleratedTaint", "tolerations"),
    ("unknown", GPU | {"products": ["NVIDIA-X1"]}, {}, "NoGPUNode", f"{PRODUCT} ("),
    ("larger", GPU | {"count": 3}, {}, "NoGPUNode", "the largest has 2"),
    (
        "labels",
        GPU | {"pod": TOLERANT | {"nodeSelector": {"pool": "none"}}},
        {},
        "NoMatchingNode",
        "pool=none",
    ),
    (
        "crowded",
        CPU | {"pod": TOLERANT | {"resources": {"requests": {"cpu": 100000}}}},
        {},
        "NoRoomOnNodes",
        "lower accelerators[]",
    ),
    (
        "claim",
        CPU,
        {"model": {"source": "pvc://nowhere/model"}},
        "VolumeNotAvailable",
        '"nowhere" not found',
    ),
]


def test_causes_are_told_apart_by_what_the_scheduler_says(
    kwok_cluster: Cluster, operator: RunningOperator
) -> None:
    for name, accelerator, spec, _, _ in CASES:
        make(kwok_cluster, "default", name, accelerators=[accelerator], replicas=1, **spec)
    for name, _, _, reason, words in CASES:
        assert words in _wait_for_reason(kwok_cluster, name, reason)
        assert not _may_room_help(kwok_cluster, name), "whoever makes room for it"


def _may_room_help(cluster: Cluster, name: str) -> bool:
    """Whether its pod might find a node once others left theirs."""
    selector = f"labelSelector=serving.quire.dev/service={name}"
    items = cluster.api.get(f"/api/v1/namespaces/default/pods?{selector}")["items"]
    pods = [pod_from(one) for one in items]
    assert pods
    assert all(pod.scheduler_message for pod in pods)
    return any(pod.may_room_help for pod in pods)


def _wait_for_reason(cluster: Cluster, name: str, reason: str) -> str:
    """The message of GPUsAvailable, once it has the reason."""

    def condition() -> dict[str, str]:
        body = get(cluster, "qis", "default", name) or {}
        found: list[dict[str, str]] = body.get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == "GPUsAvailable"), {})

    wait_until(lambda: condition().get("reason") == reason)
    return condition()["message"]
