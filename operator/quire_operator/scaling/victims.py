"""Which replicas go: those that serve nobody first, then those with the fewest blocks in flight."""

from collections.abc import Mapping, Sequence

from quire_operator.scaling.clamping import Limit
from quire_operator.scaling.inputs import Replica

_UNKNOWN = 1 << 40
"""Blocks of a replica that is not heard: what it has may be much."""


def choose_victims(
    replicas: Sequence[Replica], ordered: Mapping[str, int], wanted: Mapping[str, int]
) -> tuple[str, ...]:
    """Choose so many of each accelerator's replicas as are fewer from now on.

    What was ordered and is not there yet goes first of all: it needs no victim.
    """
    found: list[str] = []
    for accelerator, before in ordered.items():
        there = [one for one in replicas if one.accelerator == accelerator and not one.is_ending]
        surplus = min(len(there), before) - wanted.get(accelerator, 0)
        found += [one.name for one in sorted(there, key=_worth)[: max(surplus, 0)]]
    return tuple(found)


def next_victims(
    replicas: Sequence[Replica], surplus: Sequence[str], limits: Sequence[Limit]
) -> list[Replica]:
    """The replica of each of these accelerators that would go first, what serves nobody first.

    Of those that serve, the dearest accelerator's comes first.
    """
    costs = {one.name: one.cost for one in limits}
    found = []
    for name in surplus:
        there = [one for one in replicas if one.accelerator == name and not one.is_ending]
        if there:
            found.append(min(there, key=_worth))
    return sorted(found, key=lambda one: (_worth(one)[:3], -costs[one.accelerator]))


def _worth(replica: Replica) -> tuple[bool, bool, bool, int, str]:
    engine = replica.engine
    held = _UNKNOWN if engine is None else engine.num_held_blocks
    return (
        not replica.is_failing,
        replica.is_scheduled,
        replica.is_ready,
        held if replica.is_ready else 0,
        replica.name,
    )
