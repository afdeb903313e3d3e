"""Load that is spread over replicas that are given.

Linear programs without integers: they take a tenth of the time of those that choose replicas, and
most are answered without a solver.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from quire_operator.scaling.grouping import Group
from quire_operator.scaling.mix import Option, group_of
from quire_operator.scaling.newest import Newest
from quire_operator.scaling.programs import Row, Shares, make_model, run
from quire_operator.scaling.without_solver import load_of_two

_TWO = 2


Shared = Mapping[str, tuple[float, ...]]
"""Part of each bucket that goes to an accelerator, by its name."""


class Carried:
    """How replicas that are given carry some load."""

    def __init__(self, load: float, spread: "_Spread | Shared") -> None:
        self.load = load
        """Of the busiest; 1 is the target, infinity: some of it is for none of them."""
        self._spread = spread

    @cached_property
    def shares(self) -> Shared:
        """Part of each bucket that goes to an accelerator.

        By the solver: of several that are as good it takes one, and hardly any are asked for.
        """
        return self._spread.solve().shares if isinstance(self._spread, _Spread) else self._spread


def carry(
    options: Sequence[Option], counts: Mapping[str, float], rates: Sequence[float]
) -> Carried:
    """Spread rates over replicas that are given so that the busiest are as idle as can be.

    Parameters
    ----------
    counts
        Replicas that carry something, by accelerator.
    """
    there = [one for one in options if counts.get(one.name, 0.0) > 0]
    return _carried.find(
        [one.loads for one in there],
        (*((one.name, one.cost, counts[one.name]) for one in there), *rates),
        lambda: _carry(there, counts, rates),
    )


_carried: Newest[Carried] = Newest(32)
"""The same is asked for by several rules."""


def _carry(there: Sequence[Option], counts: Mapping[str, float], rates: Sequence[float]) -> Carried:
    groups = group_of(there, rates)
    num = len(rates)
    if not groups:
        return Carried(0.0, {one.name: (0.0,) * num for one in there})
    if any(not group.is_served for group in groups):
        return Carried(math.inf, {})
    if len(there) == 1:
        return Carried(_load_alone(there[0], counts, groups), {there[0].name: (1.0,) * num})
    spread = _Spread(there, [counts[one.name] for one in there], groups, num)
    if len(there) == _TWO:
        load = load_of_two(groups, (spread.counts[0], spread.counts[1]))
        if load is not None:
            return Carried(load, spread)
    return spread.solve()


@dataclass(frozen=True, slots=True)
class _Spread:
    """The program that spreads groups of buckets over replicas that are given."""

    there: Sequence[Option]
    counts: Sequence[float]
    groups: Sequence[Group]
    num_buckets: int

    def solve(self) -> Carried:
        """Make the busiest as idle as can be."""
        columns = Shares(self.groups, len(self.there), 0)
        pairs = columns.pairs
        load_column = len(pairs)
        rows = [Row(values, 1.0, 1.0) for values in columns.of_group]
        for count, both in zip(self.counts, columns.loads, strict=True):
            rows += [Row({load_column: -count} | loads, -math.inf, 0.0) for loads in both]
        size = len(pairs) + 1
        solution = run(
            make_model(
                [*[0.0] * len(pairs), 1.0],
                [0.0] * size,
                [*[1.0] * len(pairs), math.inf],
                rows,
            )
        )
        shares = {one.name: [0.0] * self.num_buckets for one in self.there}
        for place, (option, group) in enumerate(pairs):
            for index in self.groups[group].members:
                shares[self.there[option].name][index] = min(max(solution[place], 0.0), 1.0)
        return Carried(
            max(solution[load_column], 0.0),
            {name: tuple(parts) for name, parts in shares.items()},
        )


def _load_alone(option: Option, counts: Mapping[str, float], groups: Sequence[Group]) -> float:
    """One accelerator has no choice."""
    loads = [group.loads[0] for group in groups]
    used = max(sum(load[kind] for load in loads if load) for kind in (0, 1))
    return used / counts[option.name]
