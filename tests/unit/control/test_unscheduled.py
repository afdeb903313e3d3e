"""What the scheduler says, as users read it: which cause it is, and what to do."""

from dataclasses import replace
from typing import Any

import pytest

from quire_operator.planner.observed import Node
from quire_operator.planner.unscheduled import NoNode, why_no_node
from tests.unit.control.builders import CPU, L4, NOW, service

MISMATCH = "node(s) didn't match Pod's node affinity/selector"
PREEMPTION = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
NODE = Node(name="n", product="NVIDIA-L4", num_gpus=2, is_ready=True, created_at=NOW)
OTHER = replace(NODE, product="Tesla-T4")


def why(said: str, accelerator: dict[str, Any] = L4, *nodes: Node) -> NoNode:
    words = f"0/3 nodes are available: {said}.{PREEMPTION}"
    return why_no_node(words, service(accelerator).spec.accelerators[0], nodes or (NODE,))


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        (f"1 Insufficient nvidia.com/gpu, 2 {MISMATCH}", "NoGPUNode", "all such GPUs are taken"),
        ("1 Insufficient cpu, 2 Insufficient memory", "NoRoomOnNodes", "lower accelerators[]"),
        (f"1 node(s) had untolerated taint(s), 2 {MISMATCH}", "UntoleratedTaint", "tolerations"),
        ("3 node(s) had untolerated taint {a: b}", "UntoleratedTaint", "tolerations"),
        ('persistentvolumeclaim "cache" not found', "VolumeNotAvailable", "kubectl get pvc"),
        (
            "pod has unbound immediate PersistentVolumeClaims",
            "VolumeNotAvailable",
            "kubectl get pvc",
        ),
        ("3 node(s) had volume node affinity conflict", "VolumeNotAvailable", "kubectl get pvc"),
        ("3 node(s) were unschedulable", "NodesNotReady", "cordoned"),
        (
            "3 node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
            "NodesNotReady",
            "not ready",
        ),
        (f"3 {MISMATCH}", "NoGPUNode", "0/3 nodes"),
    ],
)
def test_causes_are_told_apart(said: str, reason: str, words: str) -> None:
    found = why(said)

    assert found.reason == reason
    assert words in found.words
    assert said in found.words
    assert "reemption" not in found.words


def test_a_schedulers_loose_end_is_left_out() -> None:
    said = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    accelerator = service(L4).spec.accelerators[0]
    for end in ("", " not found", " not found preemption: 0/1 nodes", " preemption: 0/1 nodes"):
        words = why_no_node(said + end, accelerator, (NODE,)).words
        assert words.startswith(f"{said} (its claim must be there")


def test_a_product_that_no_node_has_is_said_with_those_that_there_are() -> None:
    found = why(f"3 {MISMATCH}", L4, OTHER, OTHER, replace(OTHER, product="NVIDIA-A10"))

    assert found.reason == "NoGPUNode"
    assert "NVIDIA-A10 (1), Tesla-T4 (2)" in found.words
    none = why(f"3 {MISMATCH}", L4, replace(OTHER, product=""))
    assert "no node has the label nvidia.com/gpu.product" in none.words


def test_nodes_that_are_down_are_said_and_not_their_taints() -> None:
    down = replace(NODE, is_ready=False)
    assert why(f"1 node(s) had untolerated taint(s), 2 {MISMATCH}", L4, down).reason == (
        "NodesNotReady"
    )


def test_more_gpus_than_any_node_has_are_said() -> None:
    found = why("3 Insufficient nvidia.com/gpu", L4 | {"count": 4})
    assert "no node has 4 of them; the largest has 2" in found.words


def test_labels_that_no_node_has_are_said() -> None:
    found = why(f"3 {MISMATCH}", L4 | {"pod": {"nodeSelector": {"pool": "x"}}})
    assert found.reason == "NoMatchingNode"
    assert "pool=x" in found.words


def test_without_an_inventory_nothing_is_said_of_it() -> None:
    accelerator = service(L4).spec.accelerators[0]
    found = why_no_node(f"0/3 nodes are available: 3 {MISMATCH}.", accelerator, None)
    assert found.reason == "NoGPUNode"
    assert "kubectl get nodes -L nvidia.com/gpu.product" in found.words


def test_words_that_are_not_the_schedulers_are_left_as_they_are() -> None:
    accelerator = service(CPU).spec.accelerators[0]
    assert why_no_node("another one's words", accelerator, ()) == ("NoNode", "another one's words")
