"""Why the scheduler finds no node for a pod: its words, sorted into causes with what to do.

Its message counts nodes by what ruled each of them out first:

    0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node
    affinity/selector, 1 node(s) had untolerated taint(s).

Nodes are asked in a fixed order: are they ready, is there a taint, do labels match, is there room,
are volumes there. So the last of these that is named is what the nearest node lacks: the cause.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from quire_operator.planner.names import GPU_RESOURCE, PRODUCT_LABEL
from quire_operator.planner.observed import Node
from quire_operator.resource.accelerator import WITHOUT_GPU, Accelerator

_PREEMPTION = re.compile(r"(?:(?<=\.) not found)?\s*(?:preemption: .*)?$", re.DOTALL)
"""What follows the cause: preemption, which helps nobody here, and a scheduler's loose end."""
_VOLUME = re.compile(r"persistentvolume|volume|storageclass", re.IGNORECASE)
_ROOM = re.compile(r"Insufficient (?!nvidia\.com/gpu)|Too many pods")
_MISMATCH = "didn't match Pod's node affinity/selector"
_TAINT = "untolerated taint"
_OF_NODES = re.compile(r"nodes are available|within provisionTimeout")
_NOT_READY = re.compile(r"were unschedulable|node\.kubernetes\.io/(not-ready|unreachable)")
_GET_NODES = "(the nodes are not ready or cordoned: kubectl get nodes tells)"


class NoNode(NamedTuple):
    """Why there is no node."""

    reason: str
    words: str
    """The scheduler's, and what to do."""


def why_no_node(words: str, accelerator: Accelerator, nodes: Sequence[Node] | None) -> NoNode:
    """Find the cause.

    Parameters
    ----------
    words
        The scheduler's message.
    nodes
        None where nodes may not be read.
    """
    said = _PREEMPTION.sub("", words).strip()
    reason, advice = _cause(said, accelerator, nodes)
    return NoNode(reason, f"{said} {advice}".strip() if advice else said)


def _cause(said: str, accelerator: Accelerator, nodes: Sequence[Node] | None) -> tuple[str, str]:
    if _VOLUME.search(said):
        return "VolumeNotAvailable", (
            "(its claim must be there and bindable: kubectl get pvc tells, and the claim's events)"
        )
    if accelerator.products and f"Insufficient {GPU_RESOURCE}" in said:
        return "NoGPUNode", _of_gpus(accelerator, nodes)
    if _ROOM.search(said):
        return "NoRoomOnNodes", (
            "(nodes have too little of it left: lower accelerators[].pod.resources, or add nodes)"
        )
    if _lacks_product(said, accelerator, nodes):
        return "NoGPUNode", _of_products(nodes or ())
    if _are_down(accelerator, nodes):
        return "NodesNotReady", _GET_NODES
    if _TAINT in said and not _NOT_READY.search(said):
        return "UntoleratedTaint", (
            "(nodes are tainted: add what they need to accelerators[].pod.tolerations, or take the"
            " taint away; kubectl describe nodes shows it)"
        )
    if _MISMATCH in said:
        return _of_labels(accelerator, nodes)
    if _NOT_READY.search(said):
        return "NodesNotReady", _GET_NODES
    return "NoNode" if accelerator.name in WITHOUT_GPU else "NoGPUNode", ""


def _lacks_product(said: str, accelerator: Accelerator, nodes: Sequence[Node] | None) -> bool:
    """Whether it is seen that no node has one of the products."""
    if not accelerator.products or nodes is None or not _OF_NODES.search(said):
        return False
    return not _with_product(accelerator, nodes)


def _are_down(accelerator: Accelerator, nodes: Sequence[Node] | None) -> bool:
    """Whether it is seen that all nodes with the products are down: they are tainted then."""
    able = _with_product(accelerator, nodes or ())
    return bool(able) and not any(one.is_ready for one in able)


def _of_gpus(accelerator: Accelerator, nodes: Sequence[Node] | None) -> str:
    most = max((one.num_gpus for one in _with_product(accelerator, nodes or ())), default=0)
    if nodes is not None and most < accelerator.count:
        have = f"no node has {accelerator.count} of them; the largest has {most}"
        return f"({have}: lower accelerators[].count, or add larger nodes)"
    return "(all such GPUs are taken: add nodes, or take replicas from others)"


def _of_products(nodes: Sequence[Node]) -> str:
    found = Counter(one.product for one in nodes if one.product)
    if not found:
        return (
            f"(no node has the label {PRODUCT_LABEL}: NVIDIA's GPU feature discovery sets it; or"
            " add nodes with GPUs)"
        )
    there = ", ".join(f"{name} ({number})" for name, number in sorted(found.items()))
    return (
        f"(no node has such a product; there are, by number of nodes: {there}. Correct"
        " accelerators[].products, or add nodes)"
    )


def _of_labels(accelerator: Accelerator, nodes: Sequence[Node] | None) -> tuple[str, str]:
    chosen = dict(accelerator.pod.node_selector)
    if chosen:
        wanted = ", ".join(f"{name}={value}" for name, value in sorted(chosen.items()))
        return "NoMatchingNode", (
            f"(no node has the labels of accelerators[].pod.nodeSelector, {wanted}: correct it, or"
            " label nodes)"
        )
    if accelerator.products and nodes is None:
        return "NoGPUNode", f"(no node has such a product: kubectl get nodes -L {PRODUCT_LABEL})"
    return "NoGPUNode" if accelerator.products else "NoMatchingNode", ""


def _with_product(accelerator: Accelerator, nodes: Sequence[Node]) -> list[Node]:
    return [one for one in nodes if one.product in accelerator.products]
