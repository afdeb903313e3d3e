"""The cheapest replicas that carry some load: a mixed-integer program.

    minimise   sum price n  +  MOVE_COST x price x (replicas that are new)  +  penalty x unserved
    where      each bucket is spread over accelerators, or unserved
               load of an accelerator, of memory and of time  <=  its replicas
               lowest <= n <= highest, fewest <= sum n <= most, sum price n <= most cost
               GPUs that accelerators share  <=  those that there are

By HiGHS on one thread, with a fixed seed and a bound on nodes, so that the same question has the
same answer. Buckets that are alike for all accelerators are put together first.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import highspy
import numpy as np

# `highspy.Highs` prints a banner when it is made, before it can be told not to
from highspy._core import _Highs

from quire_operator.scaling.grouping import Group, Loads, group_alike
from quire_operator.scaling.newest import Newest

NO_COST = 1e-9
"""An hour: sums of prices that differ by less are the same."""
MOVE_COST = 0.1
"""Of its price, that a new replica must save an hour to be worth its coming."""
_UNSERVED = 1e4
"""So much dearer than the dearest replica is a replica's load that nobody serves."""
_MAX_NODES = 200
_GAP = 0.005
_SEED = 7
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Option:
    """One accelerator, to be chosen or not."""

    name: str
    cost: float
    """Of a replica an hour."""
    loads: Loads
    """Of a request a second of each bucket; None: it cannot serve such."""
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
        return self.unserved <= 1e-4


@dataclass(frozen=True, kw_only=True)
class Carried:
    """How replicas that are given carry some load."""

    load: float
    """Of the busiest; 1 is the target, infinity: some of it is for none of them."""
    shares: Mapping[str, tuple[float, ...]]
    """Part of each bucket that goes to an accelerator."""


def choose(options: Sequence[Option], rates: Sequence[float], bounds: Bounds) -> Mix:
    """Choose the cheapest replicas for these rates by bucket."""
    possible = [one for one in options if max(one.lowest, one.highest) > 0]
    groups = _group(possible, rates)
    if not possible or any(not group.is_served for group in groups):
        # what is left unserved is measured by those that could serve it
        possible, groups = list(options), _group(options, rates)
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


_carried: Newest[Carried] = Newest(256)
"""The same is asked for by several rules."""


def _carry(there: Sequence[Option], counts: Mapping[str, float], rates: Sequence[float]) -> Carried:
    groups = _group(there, rates)
    if not groups:
        return Carried(load=0.0, shares={one.name: (0.0,) * len(rates) for one in there})
    if any(not group.is_served for group in groups):
        return Carried(load=math.inf, shares={})
    if len(there) == 1:
        return _carry_alone(there[0], counts, groups, len(rates))
    pairs = _pairs(groups)
    load_column = len(pairs)
    rows = [_Row(_shares_of(pairs, group, 0), 1.0, 1.0) for group in range(len(groups))]
    for option, one in enumerate(there):
        for kind in (0, 1):
            values = {load_column: -counts[one.name]}
            values |= _loads_on(pairs, groups, option, kind, 0)
            rows.append(_Row(values, -math.inf, 0.0))
    size = len(pairs) + 1
    solution = _run(
        _model(
            [*[0.0] * len(pairs), 1.0],
            [0.0] * size,
            [*[1.0] * len(pairs), math.inf],
            rows,
        )
    )
    shares = {one.name: [0.0] * len(rates) for one in there}
    for place, (option, group) in enumerate(pairs):
        for index in groups[group].members:
            shares[there[option].name][index] = min(max(solution[place], 0.0), 1.0)
    return Carried(
        load=max(solution[load_column], 0.0),
        shares={name: tuple(parts) for name, parts in shares.items()},
    )


def least_cost(options: Sequence[Option], rates: Sequence[float]) -> float:
    """What no replicas for these rates can cost less than, whatever the bounds: parts of replicas.

    What nobody can serve costs nothing. It takes a tenth of the time of `choose`.
    """
    groups = [one for one in _group(options, rates) if one.is_served]
    if not groups:
        return 0.0
    pairs, num = _pairs(groups), len(options)
    rows = [_Row(_shares_of(pairs, group, num), 1.0, 1.0) for group in range(len(groups))]
    for option in range(num):
        for kind in (0, 1):
            loads = _loads_on(pairs, groups, option, kind, num)
            rows.append(_Row({option: -1.0} | loads, -math.inf, 0.0))
    costs = [*(one.cost for one in options), *[0.0] * len(pairs)]
    size = len(costs)
    counts = _run(_model(costs, [0.0] * size, [math.inf] * size, rows))[:num]
    return sum(max(count, 0.0) * one.cost for count, one in zip(counts, options, strict=True))


def _group(options: Sequence[Option], rates: Sequence[float]) -> list[Group]:
    return group_alike([one.loads for one in options], [one.cost for one in options], rates)


def _carry_alone(
    option: Option, counts: Mapping[str, float], groups: Sequence[Group], num_buckets: int
) -> Carried:
    """One accelerator has no choice."""
    loads = [group.loads[0] for group in groups]
    used = max(sum(load[kind] for load in loads if load) for kind in (0, 1))
    return Carried(load=used / counts[option.name], shares={option.name: (1.0,) * num_buckets})


class _Program:
    """The program's columns: replicas, new replicas, then shares of groups, then unserved parts."""

    def __init__(self, options: Sequence[Option], groups: Sequence[Group], bounds: Bounds) -> None:
        self._options = options
        self._groups = groups
        self._bounds = bounds
        self._num = len(options)
        self._scale = max((one.cost for one in options), default=1.0) or 1.0
        self._pairs = _pairs(groups)
        self._first_share = 2 * self._num
        self._first_unserved = self._first_share + len(self._pairs)
        self._missing = self._first_unserved + len(groups)
        """Replicas that are fewer than the fewest."""
        self._num_columns = self._missing + 1

    def solve(self, *, most_unserved: float | None = None) -> list[float]:
        """Solve it: all columns' values."""
        lower, upper = self._column_bounds()
        costs = self._costs(most_unserved is None)
        lp = _model(costs, lower, upper, self._rows(most_unserved))
        integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [integer] * self._num + [real] * (self._num_columns - self._num)
        return _run(lp)

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

    def _rows(self, most_unserved: float | None) -> list["_Row"]:
        rows = [self._spread(group) for group in range(len(self._groups))]
        rows += [self._carried(option, kind) for option in range(self._num) for kind in (0, 1)]
        bounds, options = self._bounds, self._options
        every = range(self._num)
        rows += [
            _Row({at: 1.0, self._num + at: -1.0}, -math.inf, options[at].current) for at in every
        ]
        total = dict.fromkeys(every, 1.0)
        rows.append(_Row(total, -math.inf, max(bounds.most, 0)))
        rows.append(_Row(total | {self._missing: 1.0}, bounds.fewest, math.inf))
        if bounds.most_cost is not None:
            costs = {at: options[at].cost / self._scale for at in every}
            rows.append(_Row(costs, -math.inf, bounds.most_cost / self._scale))
        for room in bounds.rooms:
            gpus = {at: float(room.gpus.get(options[at].name, 0)) for at in every}
            rows.append(_Row(gpus, -math.inf, room.most))
        if most_unserved is not None:
            weights = {
                self._first_unserved + at: group.weight for at, group in enumerate(self._groups)
            }
            rows.append(_Row(weights, -math.inf, most_unserved))
        return rows

    def _spread(self, group: int) -> "_Row":
        """A group is served in parts, or not at all."""
        values = _shares_of(self._pairs, group, self._first_share)
        return _Row(values | {self._first_unserved + group: 1.0}, 1.0, 1.0)

    def _carried(self, option: int, kind: int) -> "_Row":
        """What replicas carry of memory or of time."""
        loads = _loads_on(self._pairs, self._groups, option, kind, self._first_share)
        idle = float(self._options[option].num_idle)
        return _Row({option: -1.0} | loads, -math.inf, -idle if loads else 0.0)


@dataclass(frozen=True, slots=True)
class _Row:
    values: Mapping[int, float]
    """By column."""
    lower: float
    upper: float


_Pair = tuple[int, int]
"""An option and a group that it can serve."""


def _pairs(groups: Sequence[Group]) -> list[_Pair]:
    return [
        (option, at)
        for at, group in enumerate(groups)
        for option, load in enumerate(group.loads)
        if load is not None
    ]


def _shares_of(pairs: Sequence[_Pair], group: int, first: int) -> dict[int, float]:
    """Columns of a group's shares, the first pair's being `first`."""
    return {first + place: 1.0 for place, pair in enumerate(pairs) if pair[1] == group}


def _loads_on(
    pairs: Sequence[_Pair], groups: Sequence[Group], option: int, kind: int, first: int
) -> dict[int, float]:
    """What an option would carry of each group, by the columns of their shares."""
    found = {}
    for place, (one, group) in enumerate(pairs):
        loads = groups[group].loads[one]
        if one == option and loads is not None:
            found[first + place] = loads[kind]
    return found


def _model(
    costs: Sequence[float], lower: Sequence[float], upper: Sequence[float], rows: Sequence[_Row]
) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(costs), len(rows)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = map(np.array, (costs, lower, upper))
    lp.row_lower_ = np.array([row.lower for row in rows])
    lp.row_upper_ = np.array([row.upper for row in rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row.values) for row in rows)])
    lp.a_matrix_.index_ = np.array([column for row in rows for column in row.values], dtype=int)
    lp.a_matrix_.value_ = np.array([value for row in rows for value in row.values.values()])
    return lp


class _Solvers(threading.local):
    """Of each thread: one for programs with integers, one for those without.

    They are used again, for to make one takes as long as to solve a small program. Nothing of a
    program before is left in them.
    """

    def __init__(self) -> None:
        self.integer = _make_solver(presolve="choose")
        self.linear = _make_solver(presolve="off")


def _make_solver(presolve: str) -> Any:  # noqa: ANN401 - highspy tells no types
    solver = _Highs()
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", _SEED),
        ("presolve", presolve),
        ("mip_max_nodes", _MAX_NODES),
        ("mip_rel_gap", _GAP),
        ("mip_heuristic_run_feasibility_jump", False),  # half of the time, for nothing better
    ):
        solver.setOptionValue(name, value)
    return solver


_solvers = _Solvers()


def _run(lp: highspy.HighsLp) -> list[float]:
    """Run HiGHS.

    Raises
    ------
    RuntimeError
        It finds no solution at all: the bounds contradict each other, which callers see to.
    """
    solver = _solvers.integer if len(lp.integrality_) else _solvers.linear
    solver.passModel(lp)
    solver.run()
    values = list(solver.getSolution().col_value)
    if len(values) != lp.num_col_ or not solver.getSolution().value_valid:
        raise RuntimeError(f"bug: no mix found: {solver.getModelStatus()}")
    return values
