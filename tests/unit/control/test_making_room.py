"""Old engines make room for new ones only where that helps these."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from quire_operator.planner.making_room import old_ones_may_help
from quire_operator.planner.observed import Node, Observed, Pod, may_room_help, node_from
from tests.unit.control.builders import CPU, L4, NOW, SETTINGS, Cluster, external, service

NODE = Node(
    name="a",
    product="NVIDIA-L4",
    num_gpus=2,
    is_ready=True,
    created_at=NOW,
    labels={"pool": "x"},
    taints=(("nvidia.com/gpu", "present", "NoSchedule"), ("spot", "true", "NoExecute")),
    allocatable={"cpu": "7900m", "memory": "64Gi", "nvidia.com/gpu": "2"},
)
SPOT = {"key": "spot", "operator": "Exists"}
OLD = Pod(
    name="old", accelerator="l4", template_hash="1", created_at=NOW, is_scheduled=True, node="a"
)
LATER = NOW + timedelta(minutes=2)
NEW = replace(OLD, name="new", template_hash="2", created_at=LATER, is_scheduled=False, node="")


def helps(
    accelerator: dict[str, Any], *nodes: Node, pods: tuple[Pod, ...] = (OLD, NEW), **pod: Any
) -> bool:
    made = service(accelerator | {"pod": {"tolerations": [SPOT]} | pod})
    observed = Observed(service=made, nodes=nodes or (NODE,))
    waiting = [one for one in pods if not one.is_scheduled]
    return old_ones_may_help(observed, made.spec.accelerators[0], pods, waiting, SETTINGS)


def test_room_helps_where_old_ones_have_what_new_ones_want() -> None:
    assert helps(L4)
    assert helps(L4, nodeSelector={"pool": "x"})
    assert helps(L4 | {"count": 2})
    assert helps(L4, resources={"requests": {"cpu": 7, "memory": "60Gi"}, "limits": {"cpu": 9}})
    assert helps(L4, tolerations=[{"operator": "Exists"}])
    assert helps(L4, tolerations=[{"key": "spot", "value": "true", "effect": "NoExecute"}])
    assert helps(CPU, tolerations=[{"operator": "Exists"}])


@pytest.mark.parametrize(
    ("accelerator", "pod"),
    [
        ({"products": ["NVIDIA-L40S"]}, {}),
        ({"count": 4}, {}),
        ({}, {"nodeSelector": {"pool": "y"}}),
        ({}, {"nodeSelector": {"other": "x"}}),
        ({}, {"resources": {"requests": {"memory": "640Gi"}}}),
        ({}, {"resources": {"limits": {"cpu": "8"}}}),
        ({}, {"resources": {"limits": {"example.com/device": 1}}}),
        ({}, {"tolerations": []}),
        ({}, {"tolerations": [{"key": "spot", "value": "false"}]}),
        ({}, {"tolerations": [SPOT | {"effect": "NoSchedule"}]}),
    ],
)
def test_old_ones_stay_where_new_ones_could_not_take_their_nodes(
    accelerator: dict[str, Any], pod: dict[str, Any]
) -> None:
    assert not helps(L4 | accelerator, **pod)


def test_old_ones_stay_on_nodes_that_take_none() -> None:
    assert not helps(L4, replace(NODE, is_ready=False))
    assert not helps(L4, replace(NODE, product=""))  # its label was taken away meanwhile
    other = replace(NODE, name="b")
    assert not helps(L4, replace(NODE, is_ready=False), other)
    assert helps(L4, other), "a node that is not seen yet may be any"


def test_an_old_one_that_waits_itself_has_nothing_to_give() -> None:
    waiting = replace(OLD, name="waiting", is_scheduled=False, node="")
    assert helps(L4, pods=(OLD, waiting, NEW))
    typo = replace(NEW, may_room_help=False)
    assert not helps(L4, pods=(OLD, waiting, typo)), "what it waits for is no new one's"
    assert not helps(L4, pods=(waiting, NEW))
    between = replace(OLD, name="between", template_hash="3", created_at=NOW + timedelta(minutes=1))
    assert not helps(L4, pods=(between, waiting, typo)), "nor what came after it"


_PREEMPTION = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are"


@pytest.mark.parametrize(
    ("words", "may"),
    [
        ('0/2 nodes are available: persistentvolumeclaim "no" not found. not found', False),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.", False),
        (f"{_PREEMPTION} available: 2 Preemption is not helpful for scheduling.", False),
        (f"{_PREEMPTION} available: 1 No preemption victims found, 1 Preemption is not", True),
        ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", True),
        ("another scheduler's words", True),
        ("", True),
    ],
)
def test_the_schedulers_words_tell_whether_room_may_help(words: str, may: bool) -> None:
    assert may_room_help(words) is may


def test_a_rollout_ends_where_old_ones_wait_and_nodes_are_seen() -> None:
    cluster = Cluster(service(L4, **external(4)), {"l4": 2})
    cluster.nodes = [NODE]
    cluster.settle()
    cluster.pods = [replace(pod, node="a" if pod.is_scheduled else "") for pod in cluster.pods]
    first = {pod.template_hash for pod in cluster.pods}

    cluster.change(accelerators=[L4 | {"pod": {"tolerations": [SPOT]}}])
    for _ in range(6):
        cluster.settle(60)
        cluster.wait(31)

    assert not first & {pod.template_hash for pod in cluster.pods}
    assert cluster.num_ready() == 2


def test_a_node_is_read_with_what_pods_ask_of_it() -> None:
    body = {
        "metadata": {
            "name": "a",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"pool": "x", "nvidia.com/gpu.product": "NVIDIA-L4"},
        },
        "spec": {"taints": [{"key": "spot", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4"}},
    }
    node = node_from(body)
    assert node.labels["pool"] == "x"
    assert node.taints == (("spot", "", "NoSchedule"),)
    assert node.allocatable == {"cpu": "4"}
