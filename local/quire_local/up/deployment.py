"""Which engines a Deployment starts and ends: what its controller does in a cluster.

Pure. With a surge a new engine comes before an old one goes; one by one an old one goes first. Old
engines that are not ready go at once: they serve nobody, and hold what new ones need.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quire_operator.planner.observed import Deployment, deployment_from

Body = Mapping[str, Any]

_LONG_AGO = "1970-01-01T00:00:00Z"
"""What finds no GPU here waits in vain: each look gives free ones away before it plans."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One engine that is not ending."""

    name: str
    is_current: bool
    """Whether it is of the newest template."""
    is_ready: bool
    number: int
    """Rises with each engine."""
    is_chosen: bool = False
    """Whether scaling takes it first."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is to be done now; what follows depends on what comes of it."""

    num_new: int = 0
    leaving: tuple[str, ...] = ()


def next_step(replicas: int, members: Sequence[Member], *, surge: int, gap: int) -> Step:
    """Choose what brings the engines nearer to `replicas` of the newest template.

    Parameters
    ----------
    surge
        So many more than `replicas` may be there while they are replaced.
    gap
        So many fewer than `replicas` may be ready.
    """
    if replicas == 0:
        return Step(leaving=tuple(one.name for one in members))
    current = [one for one in members if one.is_current]
    old = [one for one in members if not one.is_current]
    too_many = sorted(current, key=_worst_first)[: max(len(current) - replicas, 0)]
    leaving = [*too_many, *(one for one in old if not one.is_ready)]
    ready_old = sorted((one for one in old if one.is_ready), key=lambda one: one.number)
    num_ready = len(ready_old) + sum(one.is_ready for one in current if one not in too_many)
    num_spare = max(num_ready - (replicas - gap), 0)
    leaving += ready_old[:num_spare]
    num_staying = len(members) - len(leaving)
    num_new = min(replicas - len(current) + len(too_many), replicas + surge - num_staying)
    return Step(num_new=max(num_new, 0), leaving=tuple(one.name for one in leaving))


def observe(body: Body, members: Sequence[Member]) -> Deployment:
    """A Deployment as the planner sees it."""
    current = [one for one in members if one.is_current]
    status = {
        "replicas": len(members),
        "updatedReplicas": len(current),
        "readyReplicas": sum(one.is_ready for one in members),
        "availableReplicas": sum(one.is_ready for one in members),
        "conditions": [{"type": "Progressing", "status": "True", "lastUpdateTime": _LONG_AGO}],
    }
    return deployment_from({**body, "status": status})


def surge_and_gap(body: Body) -> tuple[int, int]:
    """How a Deployment replaces its engines."""
    rolling = body["spec"]["strategy"]["rollingUpdate"]
    return rolling["maxSurge"], rolling["maxUnavailable"]


def _worst_first(member: Member) -> tuple[bool, bool, int]:
    return not member.is_chosen, member.is_ready, -member.number
