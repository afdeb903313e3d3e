"""Which pods of the gateway take requests, and by what protocol."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from quire_operator.cluster.kinds import PODS
from quire_operator.cluster.store import Store
from quire_operator.planner.names import GATEWAY_TLS_LABEL
from quire_operator.planner.observed import GatewayPods, Pod, pod_from
from quire_operator.planner.settings import GatewayPlace

_IS_TLS = {"true": True, "false": False}
_OVER = ("Failed", "Succeeded")
"""Phases of pods that were evicted, or are of a node that was shut down."""


def gateway_addresses(store: Store, place: GatewayPlace | None) -> tuple[str, ...]:
    """Addresses of the gateway's pods that take requests."""
    every = gateway_pods(store, place).values()
    return tuple(sorted(address for pods in every for address in pods.taking))


def gateway_pods(store: Store, place: GatewayPlace | None) -> dict[bool, GatewayPods]:
    """The gateway's pods by whether they speak TLS: pods elsewhere may have its labels, too.

    A pod without a label of it speaks as the operator was told. A kind begins with its first pod,
    ready or not, and ends with its last: what leads to it is there before it is needed, and after.

    One that is ending does not take requests in this sense: its condition stays Ready until probes
    have failed, and that may be after it has stopped to listen. Where none is ready, those are
    taken whose kubelet said so last: while the API server is slow or away nodes are missed, and
    every pod on them with it, though all go on.
    """
    if place is None:
        return {}
    by_kind: dict[bool, list[Pod]] = defaultdict(list)
    for body in store.parts_of_none(PODS.kind):
        if place.has(body["metadata"]) and not _is_over(body):
            label = body["metadata"]["labels"].get(GATEWAY_TLS_LABEL, "")
            by_kind[_IS_TLS.get(label, place.is_tls)].append(pod_from(body))
    taking = _taking([pod for pods in by_kind.values() for pod in pods])
    return {
        is_tls: GatewayPods(
            taking=_addresses(pod for pod in pods if pod.address in taking and not pod.is_ending),
            ending=_addresses(pod for pod in pods if pod.is_ending and pod.address),
        )
        for is_tls, pods in by_kind.items()
    }


def _taking(pods: list[Pod]) -> set[str]:
    staying = [pod for pod in pods if not pod.is_ending and pod.address]
    taking = [pod for pod in staying if pod.is_ready]
    return {pod.address for pod in taking or staying if pod.is_ready or pod.has_ready_containers}


def _addresses(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(sorted(pod.address for pod in pods))


def _is_over(body: Mapping[str, Any]) -> bool:
    return body.get("status", {}).get("phase") in _OVER
