"""The replicas of one service by accelerator: ordered, of use, and ready."""

from collections.abc import Mapping
from dataclasses import dataclass

from quire_operator.scaling.inputs import Replica, ServiceInputs
from quire_operator.scaling.rooms import num_scheduled


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What there is, and what is on its way."""

    ordered: Mapping[str, int]
    """Asked for."""
    useful: Mapping[str, int]
    """Of these, those that serve or will: without what fails, and what finds no node."""
    ready: Mapping[str, int]
    """Of these, those that serve now."""
    blocked: frozenset[str]
    """Accelerators of which no more are asked for: they find no node, or all of theirs fail."""

    @property
    def num_ordered(self) -> int:
        """Over all accelerators."""
        return sum(self.ordered.values())

    @property
    def num_useful(self) -> int:
        """Over all accelerators."""
        return sum(self.useful.values())

    @property
    def num_ready(self) -> int:
        """Over all accelerators."""
        return sum(self.ready.values())


def serves(replica: Replica) -> bool:
    """Whether a replica takes requests."""
    is_draining = replica.engine is not None and replica.engine.is_draining
    return replica.is_ready and not (replica.is_ending or replica.is_failing or is_draining)


def see_fleet(service: ServiceInputs, short: Mapping[str, float]) -> Fleet:
    """Count a service's replicas."""
    ordered, useful, ready, blocked = {}, {}, {}, set()
    for accelerator in service.accelerators:
        name = accelerator.name
        there = [one for one in service.replicas if one.accelerator == name and not one.is_ending]
        ordered[name] = max(service.ordered.get(name, 0), 0)
        num_failing = sum(one.is_failing for one in there)
        hoped = ordered[name]
        if name in short:
            hoped = min(hoped, num_scheduled(service, name))
        ready[name] = min(sum(map(serves, there)), ordered[name])
        useful[name] = max(hoped - num_failing, ready[name])
        if name in short or (num_failing and not ready[name]):
            blocked.add(name)
    return Fleet(ordered=ordered, useful=useful, ready=ready, blocked=frozenset(blocked))
