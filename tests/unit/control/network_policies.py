"""What NetworkPolicies allow, by the rules that Kubernetes documents for them.

A pod that a policy selects for a direction is isolated in it: only what some policy's rule allows
passes. A connection passes when its source's egress and its target's ingress both allow it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Policy = Mapping[str, Any]


class Place(NamedTuple):
    """A pod, or what is outside the cluster, which has no namespace."""

    namespace: str | None
    labels: Mapping[str, str] = {}


def is_allowed(
    policies: Sequence[Policy], source: Place, target: Place, port: int, protocol: str = "TCP"
) -> bool:
    """Whether a connection passes."""
    return _passes(policies, "egress", source, target, port, protocol) and _passes(
        policies, "ingress", target, source, port, protocol
    )


def _passes(
    policies: Sequence[Policy], side: str, own: Place, other: Place, port: int, protocol: str
) -> bool:
    selecting = [
        one["spec"]
        for one in policies
        if one["metadata"]["namespace"] == own.namespace
        and side.capitalize() in one["spec"]["policyTypes"]
        and _matches(one["spec"]["podSelector"], own.labels)
    ]
    if not selecting:
        return True
    key = "to" if side == "egress" else "from"
    return any(
        _has_port(rule, port, protocol) and _has_peer(rule.get(key), own, other)
        for spec in selecting
        for rule in spec.get(side, ())
    )


def _has_port(rule: Mapping[str, Any], port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    if not ports:
        return True
    return any((one["port"], one.get("protocol", "TCP")) == (port, protocol) for one in ports)


def _has_peer(peers: Sequence[Mapping[str, Any]] | None, own: Place, other: Place) -> bool:
    """No peers at all are everybody."""
    if not peers:
        return True
    return any(_is_peer(one, own, other) for one in peers)


def _is_peer(peer: Mapping[str, Any], own: Place, other: Place) -> bool:
    assert "ipBlock" not in peer, "none of ours has one"
    if other.namespace is None:
        return False
    spaces = peer.get("namespaceSelector")
    in_space = (
        other.namespace == own.namespace
        if spaces is None
        else _matches(spaces, {"kubernetes.io/metadata.name": other.namespace})
    )
    return in_space and _matches(peer.get("podSelector", {}), other.labels)


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "none of ours has another"
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= dict(labels).items()
