"""Nodes: those with GPUs, the labels that say which, and the device plugin that gives them out."""

from collections import Counter
from typing import Any

from quire_engine.errors import ConfigError
from quire_engine.profiles.gpus import SHARED, find_gpu, kind_of_part
from quire_local.cluster.api import ClusterApi
from quire_local.doctor.finding import Findings, fail, ok, warn
from quire_local.doctor.installation import is_ready
from quire_operator.planner.names import GPU_RESOURCE, PRODUCT_LABEL

Body = dict[str, Any]

_PLUGIN = (
    "helm repo add nvidia https://helm.ngc.nvidia.com/nvidia && helm install gpu-operator"
    " nvidia/gpu-operator --namespace gpu-operator --create-namespace"
)


def check_nodes(api: ClusterApi, services: list[Body]) -> Findings:
    """All nodes, and whether they have what services ask for."""
    nodes = api.items("/api/v1/nodes")
    if not nodes:
        yield fail("nodes", "the cluster has none", "kubectl get nodes")
        return
    ready = [node for node in nodes if is_ready(node)]
    if len(ready) < len(nodes):
        away = ", ".join(_name(node) for node in nodes if node not in ready)
        yield warn("nodes", f"not ready: {away}", "kubectl describe nodes")
    elif ready:
        yield ok("nodes", f"all {len(nodes)} are ready")
    yield from _gpus(nodes)
    yield from _wanted(nodes, services)


def _gpus(nodes: list[Body]) -> Findings:
    with_gpu = [node for node in nodes if _num_gpus(node)]
    labelled = [node for node in nodes if _product(node)]
    for node in labelled:
        if node not in with_gpu:
            words = f"{_name(node)} has the label {PRODUCT_LABEL} and gives out no {GPU_RESOURCE}"
            yield warn("gpus", f"{words}: no device plugin runs there", _PLUGIN)
    for node in with_gpu:
        if node not in labelled:
            words = f"{_name(node)} has GPUs, and no label says which: no service gets them"
            fix = f"kubectl label node {_name(node)} {PRODUCT_LABEL}=NVIDIA-L4   # its product"
            yield warn("gpus", words, fix)
    counts: Counter[str] = Counter()
    for node in with_gpu:
        if _product(node):
            counts[_product(node)] += _num_gpus(node)
    for product in sorted(counts):
        yield from _unknown(product)
    if counts:
        yield ok("gpus", ", ".join(f"{number} {name}" for name, number in sorted(counts.items())))
    elif not with_gpu and not labelled:
        words = "no node has any: services can use accelerators cpu and simulated alone"
        yield warn("gpus", words, _PLUGIN)


def _unknown(product: str) -> Findings:
    """A label of which the catalogue knows no price, no memory and no speed."""
    try:
        find_gpu(product)
    except ConfigError:
        part = kind_of_part(product)
        what = f"a GPU, and {part}" if part else "a GPU"
        words = f"{product}: quire knows no price, memory and speed of such {what}"
        fix = "set accelerators[].costPerHour where it is used; the rest is learnt of its engines"
        if product.upper().endswith(SHARED):
            fix += ", and --gpu-memory-utilization in engine.extraArgs, so that all who share fit"
        yield warn("gpus", words, fix)


def _wanted(nodes: list[Body], services: list[Body]) -> Findings:
    there = {_product(node) for node in nodes if _num_gpus(node)}
    for service in services:
        where = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
        asked = service["spec"].get("accelerators") or []
        of_gpus = [one for one in asked if one.get("products")]
        none = [one for one in of_gpus if not there & set(one["products"])]
        if of_gpus and len(none) == len(asked):
            products = ", ".join(sorted({name for one in none for name in one["products"]}))
            fix = f"kubectl get nodes --label-columns {PRODUCT_LABEL}"
            yield warn("gpus", f"{where} asks for {products}, which no node has", fix)


def _name(node: Body) -> str:
    return str(node["metadata"]["name"])


def _product(node: Body) -> str:
    return str((node["metadata"].get("labels") or {}).get(PRODUCT_LABEL, ""))


def _num_gpus(node: Body) -> int:
    return int((node.get("status", {}).get("allocatable") or {}).get(GPU_RESOURCE, 0))
