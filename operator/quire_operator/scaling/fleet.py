"""The replicas of one service by accelerator: ordered, of use, and ready."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from quire_operator.scaling.decision import Shortage
from quire_operator.scaling.inputs import Replica, ServiceInputs


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What there is, and what is on its way."""

    ordered: Mapping[str, int]
    """Asked for."""
    useful: Mapping[str, int]
    """Of these, those that serve or will: without what fails, finds no node, or is silent."""
    ready: Mapping[str, int]
    """Of these, those that serve now."""
    serving: Mapping[str, int]
    """Ready ones, silent ones included: it may be the hearing that is at fault."""
    blocked: frozenset[str]
    """Accelerators of which no more are asked for: they find no node, or are doubtful."""
    doubtful: frozenset[str]
    """Accelerators whose replicas all fail, or did so lately."""

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

    @property
    def counted_on(self) -> Mapping[str, int]:
        """Those that serve now; where all of them are silent, these."""
        return self.ready if any(self.ready.values()) else self.serving

    def num_ready_of(self, replicas: Mapping[str, int]) -> int:
        """So many of these are ready, and speak."""
        return sum(min(count, self.ready[name]) for name, count in replicas.items())

    def num_serving_of(self, replicas: Mapping[str, int]) -> int:
        """So many of these serve now, silent ones included."""
        return sum(min(count, self.serving[name]) for name, count in replicas.items())


def serves(replica: Replica) -> bool:
    """Whether a replica takes requests."""
    is_draining = replica.engine is not None and replica.engine.is_draining
    return replica.is_ready and not (replica.is_ending or replica.is_failing or is_draining)


def is_there(replica: Replica, accelerator: str) -> bool:
    """Whether a replica is of this accelerator, and stays."""
    return replica.accelerator == accelerator and not replica.is_ending


def num_scheduled(service: ServiceInputs, accelerator: str) -> int:
    """Replicas on an accelerator that have a node."""
    return sum(is_there(one, accelerator) and one.is_scheduled for one in service.replicas)


def see_fleet(
    service: ServiceInputs,
    short: Mapping[str, Shortage],
    silent: Collection[str] = (),
    avoided: Collection[str] = (),
) -> Fleet:
    """Count a service's replicas.

    Parameters
    ----------
    short
        Accelerators that found no node in time.
    silent
        Replicas of which nothing new is expected, for they have said nothing for long.
    avoided
        Accelerators of which none is added, for their replicas failed lately.
    """
    ordered, useful, ready, able = {}, {}, {}, {}
    blocked, doubtful = set(), set()
    for accelerator in service.accelerators:
        name = accelerator.name
        there = [one for one in service.replicas if is_there(one, name)]
        ordered[name] = max(service.ordered.get(name, 0), 0)
        serving = [one for one in there if serves(one)]
        num_failing = sum(one.is_failing for one in there)
        num_silent = sum(one.name in silent for one in serving)
        hoped = ordered[name]
        num_freed = short[name].num_freed // accelerator.gpus_per_replica if name in short else 0
        if name in short:
            hoped = min(hoped, num_scheduled(service, name) + num_freed)
        able[name] = min(len(serving), ordered[name])
        ready[name] = min(len(serving) - num_silent, ordered[name])
        useful[name] = max(hoped - num_failing - num_silent, ready[name])
        if (num_failing and not ready[name]) or name in avoided:
            doubtful.add(name)
        if name in short and not num_freed:
            blocked.add(name)
    return Fleet(
        ordered=ordered,
        useful=useful,
        ready=ready,
        serving=able,
        blocked=frozenset(blocked | doubtful),
        doubtful=frozenset(doubtful),
    )
