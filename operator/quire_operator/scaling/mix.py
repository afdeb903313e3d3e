"""The cheapest replicas that carry some load: a mixed-integer program.

    minimise   sum price n  +  MOVE_COST x price x (replicas that are new)  +  penalty x unserved
    where      each bucket is spread over accelerators, or unserved
               load of an accelerator, of memory and of time  <=  its replicas
               lowest <= n <= highest, fewest <= sum n <= most, sum price n <= most cost
               GPUs that accelerators share  <=  those that there are

Buckets that are alike for all accelerators are put together first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from quire_operator.scaling.grouping import Group, group_alike
from quire_operator.scaling.loads import Loads
from quire_operator.scaling.programs import Row, Shares, make_model, run

NO_COST = 1e-9
"""An hour: sums of prices that differ by less are the same."""
MOVE_COST = 0.1
"""Of its price, that a new replica must save an hour to be worth its coming."""
NEGLIGIBLE = 1e-4
"""Part of the load: as long as no more is left unserved, all is served."""
_UNSERVED = 1e4
"""So much dearer than the dearest replica is a replica's load that nobody serves."""
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Option:
    """One accelerator, to be chosen or not."""

    name: str
    cost: float
    """Of a replica an hour."""
    loads: Loads
    """Of a request a second of each bucket."""
    lowest: int = 0
    highest: int = 10
    current: int = 0
    """Replicas that need not come first."""
    num_idle: int = 0
    """Of its replicas, those that carry nothing: they fail."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """GPUs that some accelerators share."""

    gpus: Mapping[str, int]
    """GPUs of a replica, by accelerator."""
    most: int
    others: tuple[str, ...] = ()
    """Services of higher priority that have some."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What holds for all accelerators together."""

    fewest: int = 0
    most: int = 10
    most_cost: float | None = None
    rooms: tuple[Room, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mix:
    """An answer."""

    replicas: Mapping[str, int]
    shares: Mapping[str, tuple[float, ...]]
    """Part of each bucket that goes to an accelerator."""
    unserved: float
    """Part of the load that nobody serves."""
    cost: float
    """An hour."""
    loads: Mapping[str, float] = field(default_factory=dict)
    """Of each accelerator's replicas; 1 is the target."""

    @property
    def is_feasible(self) -> bool:
        """Whether everything is served."""
        return self.unserved <= NEGLIGIBLE


def choose(options: Sequence[Option], rates: Sequence[float], bounds: Bounds) -> Mix:
    """Choose the cheapest replicas for these rates by bucket."""
    possible = [one for one in options if max(one.lowest, one.highest) > 0]
    groups = group_of(possible, rates)
    if not possible or any(not group.is_served for group in groups):
        # what is left unserved is measured by those that could serve it
        possible, groups = list(options), group_of(options, rates)
    mix = _choose(possible, groups, rates, bounds)
    nothing = (0.0,) * len(rates)
    return replace(
        mix,
        replicas={one.name: mix.replicas.get(one.name, 0) for one in options},
        shares={one.name: mix.shares.get(one.name, nothing) for one in options},
    )


def _choose(
    options: Sequence[Option], groups: Sequence[Group], rates: Sequence[float], bounds: Bounds
) -> Mix:
    mix = _solve(options, groups, rates, bounds)
    most = bounds.most_cost
    if most is None or mix.cost <= most + NO_COST:
        return mix
    # the solver keeps to costs within a millionth of the dearest price: others may be cheaper
    counts = dict(mix.replicas)
    dearest_first = sorted(options, key=lambda one: -one.cost)
    for one in dearest_first:
        while _cost(options, counts) > most + NO_COST and counts[one.name] > one.lowest:
            counts[one.name] -= 1
    fewer = [replace(one, highest=counts[one.name]) for one in options]
    return _solve(fewer, groups, rates, bounds)


def _cost(options: Sequence[Option], counts: Mapping[str, int]) -> float:
    return sum(one.cost * counts[one.name] for one in options)


def _solve(
    options: Sequence[Option], groups: Sequence[Group], rates: Sequence[float], bounds: Bounds
) -> Mix:
    program = _Program(options, groups, bounds)
    values = program.solve()
    unserved = program.unserved(values)
    if unserved > _TOLERANCE:
        # the penalty hides what the replicas cost: with as much unserved, the cheapest are chosen
        values = program.solve(most_unserved=unserved * 1.001 + _TOLERANCE)
    return program.read(values, len(rates))


def group_of(options: Sequence[Option], rates: Sequence[float]) -> list[Group]:
    """Buckets that are alike for all of these, put together."""
    return group_alike([one.loads for one in options], [one.cost for one in options], rates)


class _Program:
    """The program's columns: replicas, new replicas, then shares of groups, then unserved parts."""

    def __init__(self, options: Sequence[Option], groups: Sequence[Group], bounds: Bounds) -> None:
        self._options = options
        self._groups = groups
        self._bounds = bounds
        self._num = len(options)
        self._scale = max((one.cost for one in options), default=1.0) or 1.0
        self._first_share = 2 * self._num
        self._shares = Shares(groups, self._num, self._first_share)
        self._pairs = self._shares.pairs
        self._first_unserved = self._first_share + len(self._pairs)
        self._missing = self._first_unserved + len(groups)
        """Replicas that are fewer than the fewest."""
        self._num_columns = self._missing + 1

    def solve(self, *, most_unserved: float | None = None) -> list[float]:
        """Solve it: all columns' values."""
        lower, upper = self._column_bounds()
        costs = self._costs(most_unserved is None)
        rows = self._rows(most_unserved)
        return run(make_model(costs, lower, upper, rows, num_integers=self._num))

    def unserved(self, values: Sequence[float]) -> float:
        """Load that nobody serves, in replicas."""
        parts = values[self._first_unserved : self._missing]
        return sum(part * group.weight for part, group in zip(parts, self._groups, strict=True))

    def read(self, values: Sequence[float], num_buckets: int) -> Mix:
        """Make an answer of columns' values."""
        replicas = {one.name: round(values[at]) for at, one in enumerate(self._options)}
        shares = {one.name: [0.0] * num_buckets for one in self._options}
        used = {one.name: [0.0, 0.0] for one in self._options}
        for place, (option, group) in enumerate(self._pairs):
            share = min(max(values[self._first_share + place], 0.0), 1.0)
            name, loads = self._options[option].name, self._groups[group].loads[option]
            for index in self._groups[group].members:
                shares[name][index] = share
            for kind, load in enumerate(loads or ()):
                used[name][kind] += share * load
        total = sum(group.weight for group in self._groups)
        return Mix(
            replicas=replicas,
            shares={name: tuple(parts) for name, parts in shares.items()},
            unserved=self.unserved(values) / total if total > 0 else 0.0,
            cost=_cost(self._options, replicas),
            loads={
                one.name: max(used[one.name]) / (values[at] - one.num_idle)
                for at, one in enumerate(self._options)
                if values[at] - one.num_idle > _TOLERANCE
            },
        )

    def _costs(self, is_unserved_dear: bool) -> list[float]:
        prices = [one.cost / self._scale for one in self._options]
        dear = _UNSERVED if is_unserved_dear else 0.0
        return [
            *prices,
            *(MOVE_COST * price for price in prices),
            *[0.0] * len(self._pairs),
            *(dear * group.weight for group in self._groups),
            _UNSERVED,
        ]

    def _column_bounds(self) -> tuple[list[float], list[float]]:
        lowest = [float(one.lowest) for one in self._options]
        highest = [float(max(one.highest, one.lowest)) for one in self._options]
        others = self._num_columns - self._num
        unbounded = [math.inf] * self._num + [1.0] * (others - self._num - 1) + [math.inf]
        return [*lowest, *[0.0] * others], [*highest, *unbounded]

    def _rows(self, most_unserved: float | None) -> list["Row"]:
        # a group is served in parts, or not at all
        rows = [
            Row(values | {self._first_unserved + group: 1.0}, 1.0, 1.0)
            for group, values in enumerate(self._shares.of_group)
        ]
        for option, (one, both) in enumerate(zip(self._options, self._shares.loads, strict=True)):
            rows += [
                Row({option: -1.0} | loads, -math.inf, -float(one.num_idle) if loads else 0.0)
                for loads in both
            ]
        bounds, options = self._bounds, self._options
        every = range(self._num)
        rows += [
            Row({at: 1.0, self._num + at: -1.0}, -math.inf, options[at].current) for at in every
        ]
        total = dict.fromkeys(every, 1.0)
        rows.append(Row(total, -math.inf, max(bounds.most, 0)))
        rows.append(Row(total | {self._missing: 1.0}, bounds.fewest, math.inf))
        if bounds.most_cost is not None:
            costs = {at: options[at].cost / self._scale for at in every}
            rows.append(Row(costs, -math.inf, bounds.most_cost / self._scale))
        for room in bounds.rooms:
            gpus = {at: float(room.gpus.get(options[at].name, 0)) for at in every}
            rows.append(Row(gpus, -math.inf, room.most))
        if most_unserved is not None:
            weights = {
                self._first_unserved + at: group.weight for at, group in enumerate(self._groups)
            }
            rows.append(Row(weights, -math.inf, most_unserved))
        return rows
