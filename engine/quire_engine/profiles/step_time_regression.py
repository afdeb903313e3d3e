"""The coefficients of a step-time model, from points of measured work.

Every point asks for   curve(tokens) + decodes x a + context x b + pairs x c  =  seconds
and counts by its relative error. The curve's knots lie where tokens were seen: the fewest of each
octave, and the most of all. So no knot is without evidence, and the curve is straight within each
octave, where means over steps obey the same equation as the steps themselves. Unknowns are the
first knot's seconds and the rise to each next knot: none may be negative, hence nothing falls.

The floor is the one term that is not linear. Where the shortest points make a plateau, the device
is fitted to those above it alone, and to those of the plateau that it would exceed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import NamedTuple

from quire_engine.profiles.nonnegative import Matrix, solve_nonnegative

_MIN_KNOT_RATIO = 1.25
"""Knots that are closer turn noise into slopes."""
_PLATEAU_FACTOR = 1.4
"""Of the shortest load, which noise makes too short: what is below may be at the floor."""
_BEND_WEIGHT = 0.03
"""Of a bend as high as the seconds there: keeps what few loads leave open from being wild."""
_MIN_PLATEAU_POINTS = 3
_MIN_FLOOR_GAIN = 0.95
"""A floor must reduce the squared error to this, else the model does without."""


class Load(NamedTuple):
    """One equation."""

    weight: float
    seconds: float
    tokens: float
    num_decodes: float
    context_tokens: float
    pairs: float


class Coefficients(NamedTuple):
    """What a StepTimeModel is made of, as fitted."""

    curve: list[float]
    """Seconds at each knot, never falling."""
    per_sequence: float
    per_context_token: float
    per_pair: float
    floor: float = 0.0


class _Row(NamedTuple):
    """A load, placed between the knots: curve[left] + part x (curve[left + 1] - curve[left])."""

    weight: float
    seconds: float
    left: int
    part: float
    features: tuple[float, float, float]


def choose_knots(ranges: Sequence[tuple[int, int]]) -> list[int]:
    """The knots for loads with these (fewest, most) tokens; at least one."""
    fewest: dict[int, int] = {}
    for low, _ in ranges:
        octave = low.bit_length()
        fewest[octave] = min(low, fewest.get(octave, low))
    most = max(high for _, high in ranges)
    knots = [min(fewest.values())]
    for knot in sorted(fewest.values()):
        if knot >= knots[-1] * _MIN_KNOT_RATIO:
            knots.append(knot)
    if most >= knots[-1] * _MIN_KNOT_RATIO:
        knots.append(most)
    return knots


def fit_coefficients(
    loads: Sequence[Load], knots: Sequence[int], *, idle: set[int], tries_floor: bool = True
) -> Coefficients:
    """Fit with a floor if the loads show one, otherwise without.

    Parameters
    ----------
    idle
        Unknowns that were 0 in an earlier fit; updated. To begin with them saves half the time.
    tries_floor
        Whether to look for a floor: it takes two more solutions.
    """
    rows = [_place(load, knots) for load in loads]
    level = _PLATEAU_FACTOR * min(row.seconds for row in rows)
    plateau = [row for row in rows if row.seconds < level]
    above = [row for row in rows if row.seconds >= level]
    equations = _Equations(knots)
    equations.add(above)
    equations.add(plateau)
    plain = equations.solve(idle)
    if not tries_floor or len(plateau) < _MIN_PLATEAU_POINTS or not above:
        return plain
    equations = _Equations(knots)
    equations.add(above)
    exceeding, hidden = _split(plateau, equations.solve(idle))
    if not hidden:
        return plain
    equations.add(exceeding)
    weight = sum(row.weight for row in hidden)
    floor = sum(row.weight * row.seconds for row in hidden) / weight
    floored = equations.solve(idle)._replace(floor=floor)
    return floored if _loss(rows, floored) < _MIN_FLOOR_GAIN * _loss(rows, plain) else plain


class _Equations:
    """Normal equations; the curve's part is kept by knots and solved by rises."""

    def __init__(self, knots: Sequence[int]) -> None:
        self._knots = knots
        size = len(knots) + 3
        self._gram: Matrix = [[0.0] * size for _ in range(size)]
        self._moments = [0.0] * size
        self._shortest = [0.0] * len(knots)

    def add(self, rows: Sequence[_Row]) -> None:
        """Count rows in, each as 1 = (its work x coefficients) / (its seconds)."""
        first = len(self._knots)
        gram, moments, shortest = self._gram, self._moments, self._shortest
        for weight, seconds, left, part, features in rows:
            scale = 1.0 / seconds
            if scale > shortest[left]:
                shortest[left] = scale
            entries = [(left, (1.0 - part) * scale)]
            if part:
                entries.append((left + 1, part * scale))
            for index, feature in enumerate(features, first):
                if feature:
                    entries.append((index, feature * scale))
            for position, (i, value) in enumerate(entries):
                weighted = weight * value
                moments[i] += weighted
                row = gram[i]
                for j, other in entries[position:]:
                    row[j] += weighted * other

    def solve(self, idle: set[int]) -> Coefficients:
        """The coefficients that fit the rows best; more rows may follow."""
        count, size = len(self._knots), len(self._moments)
        gram = [row.copy() for row in self._gram]
        for i in range(1, size):
            for j in range(i):
                gram[i][j] = gram[j][i]
        moments = self._moments.copy()
        # a rise moves its knot and all later ones
        for i in range(count - 2, -1, -1):
            gram[i] = list(map(add, gram[i], gram[i + 1]))
            moments[i] += moments[i + 1]
        for row in gram:
            row[count - 1 :: -1] = accumulate(row[count - 1 :: -1])
        self._bend_little(gram)
        names = [*(knot.bit_length() for knot in self._knots), -1, -2, -3]
        solution = solve_nonnegative(gram, moments, [name not in idle for name in names])
        idle.clear()
        idle.update(name for name, value in zip(names, solution, strict=True) if value == 0.0)
        return Coefficients(list(accumulate(solution[:count])), *solution[count:])

    def _bend_little(self, gram: Matrix) -> None:
        """Ask each knot, as weakly as a load of small weight, for the same slope on both sides."""
        knots = self._knots
        for i in range(1, len(knots) - 1):
            before, after = knots[i] - knots[i - 1], knots[i + 1] - knots[i]
            width = min(before, after)
            here, there = width / before, -width / after
            weight = _BEND_WEIGHT * self._shortest[i] ** 2
            gram[i][i] += weight * here * here
            gram[i][i + 1] += weight * here * there
            gram[i + 1][i] += weight * here * there
            gram[i + 1][i + 1] += weight * there * there


def _place(load: Load, knots: Sequence[int]) -> _Row:
    left = max(bisect_right(knots, load.tokens) - 1, 0)
    part = 0.0
    if len(knots) > 1:
        left = min(left, len(knots) - 2)
        part = max((load.tokens - knots[left]) / (knots[left + 1] - knots[left]), 0.0)
    features = (load.num_decodes, load.context_tokens, load.pairs)
    return _Row(load.weight, load.seconds, left, part, features)


def _device_seconds(row: _Row, fitted: Coefficients) -> float:
    seconds = fitted.curve[row.left]
    if row.part:
        seconds += row.part * (fitted.curve[row.left + 1] - seconds)
    decodes, context, pairs = row.features
    return (
        seconds
        + decodes * fitted.per_sequence
        + context * fitted.per_context_token
        + pairs * fitted.per_pair
    )


def _split(rows: Sequence[_Row], device: Coefficients) -> tuple[list[_Row], list[_Row]]:
    """(rows that should take the device longer than they took, the others)."""
    exceeding: list[_Row] = []
    hidden: list[_Row] = []
    for row in rows:
        (exceeding if _device_seconds(row, device) > row.seconds else hidden).append(row)
    return exceeding, hidden


def _loss(rows: Sequence[_Row], fitted: Coefficients) -> float:
    """Weighted sum of squared relative errors."""
    loss = 0.0
    for row in rows:
        error = max(_device_seconds(row, fitted), fitted.floor) / row.seconds - 1.0
        loss += row.weight * error * error
    return loss
