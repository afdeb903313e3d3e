"""The coefficients of a step-time model, from points of measured work.

Every point asks for

    curve(tokens) + decodes x a + context x b + pairs x c (+ d where it has prompts, and e where
                                                           these are beside decodes)  =  seconds

and counts by its relative error. The curve's knots lie where tokens were seen: the fewest of each
octave, and the most of all. So no knot is without evidence, and the curve is straight within each
octave, where means over steps obey the same equation as the steps themselves. Unknowns are the
first knot's seconds and the rise to each next knot: none may be negative, hence nothing falls.

The floor is the one term that is not linear. Where the shortest points make a plateau, the device
is fitted to those above it alone, and to those of the plateau that it would exceed. `Terms` may ask
for more: a rate of its own for each stretch of the context, and for points with prompts a constant
and a floor of their own.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from operator import add, mul
from typing import NamedTuple

from quire_engine.profiles.nonnegative import Matrix, solve_nonnegative
from quire_engine.profiles.step_time import is_padded

_MIN_KNOT_RATIO = 1.25
"""Knots that are closer turn noise into slopes."""
_PLATEAU_FACTOR = 1.4
"""Of the shortest load, which noise makes too short: what is below may be at the floor."""
_LOW_PLATEAU_FACTOR = 1.12
_BEND_WEIGHT = 0.03
"""Of a bend as high as the seconds there: keeps what few loads leave open from being wild."""
_MIN_PLATEAU_POINTS = 3
_DECODES, _PROMPTS, _MIXED = range(3)
_NUM_PLAIN_FEATURES = 4
"""Those before the context's stretches."""
_MIN_FLOOR_GAIN = 0.95
"""A floor must reduce the squared error to this, else the model does without."""


class Load(NamedTuple):
    """One equation."""

    weight: float
    seconds: float
    tokens: float
    """As they are computed: padded, where the executor pads."""
    num_decodes: float
    context_tokens: float
    pairs: float


class Terms(NamedTuple):
    """What the equations have unknowns for."""

    knots: Sequence[int]
    """Of the compute curve."""
    context_knots: Sequence[int] = (0,)
    """Context tokens at which the rate changes; rising from 0."""
    tells_prompts: bool = False
    """Whether prompts, and prompts beside decodes, have floors of their own."""
    has_prompt_constant: bool = False
    """Whether prompts add something however small they are, and beside decodes something more."""
    padded_tokens: Sequence[int] = ()
    """`StepTimeModel.padded_tokens`; loads have their tokens padded already."""


class Coefficients(NamedTuple):
    """What a StepTimeModel is made of, as fitted."""

    curve: list[float]
    """Seconds at each knot, never falling."""
    per_sequence: float
    per_pair: float
    per_prompt_step: float
    per_mixed_step: float
    per_context_token: list[float]
    """From each knot of the context on."""
    floor: float = 0.0
    prompt_floor: float = 0.0
    mixed_floor: float = 0.0


class _Row(NamedTuple):
    """A load, placed between the knots: curve[left] + part x (curve[left + 1] - curve[left])."""

    weight: float
    seconds: float
    left: int
    part: float
    kind: int
    """Which floors it has: `_DECODES`, as all that a graph launches, `_PROMPTS` or `_MIXED`."""
    features: tuple[float, ...]
    """Decodes, pairs, 1 with prompts and 1 with both if that is told, and context tokens of each
    stretch."""


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
    loads: Sequence[Load], terms: Terms, *, idle: set[int], tries_floor: bool = True
) -> Coefficients:
    """Fit with floors if the loads show them, otherwise without.

    Parameters
    ----------
    idle
        Unknowns that were 0 in an earlier fit; updated. To begin with them saves half the time.
    tries_floor
        Whether to look for a floor: it takes two more solutions.
    """
    rows = [_place(load, terms) for load in loads]
    plain = _solve(rows, terms, idle)
    if not tries_floor:
        return plain
    if not terms.tells_prompts:
        return _better(rows, plain, _fit_floors(rows, [rows], terms, idle))
    decodes, prompts, mixed = ([row for row in rows if row.kind == kind] for kind in range(3))
    best = plain
    for groups in ([decodes], [prompts, mixed], [decodes, prompts, mixed]):
        best = _better(rows, best, _fit_floors(rows, groups, terms, idle))
    return best


def _fit_floors(
    rows: Sequence[_Row],
    groups: Sequence[Sequence[_Row]],
    terms: Terms,
    idle: set[int],
) -> Coefficients | None:
    """Fit with a floor under each of these groups that shows a plateau; None where none does."""
    plateaus = [plateau for plateau in map(_plateau, groups) if len(plateau) >= _MIN_PLATEAU_POINTS]
    low = {id(row) for plateau in plateaus for row in plateau}
    above = [row for row in rows if id(row) not in low]
    if not above or not plateaus:
        return None
    equations = _Equations(terms)
    equations.add(above)
    device = equations.solve(idle)
    floors = [0.0, 0.0, 0.0]
    for plateau in plateaus:
        exceeding, hidden = _split(plateau, device)
        if terms.tells_prompts and hidden:
            # measured on purpose, each a median: what is clearly above the lowest is the device's
            level = _LOW_PLATEAU_FACTOR * min(row.seconds for row in hidden)
            exceeding += [row for row in hidden if row.seconds >= level]
            hidden = [row for row in hidden if row.seconds < level]
        equations.add(exceeding)
        if hidden:
            weight = sum(row.weight for row in hidden)
            floor = sum(row.weight * row.seconds for row in hidden) / weight
            floors[hidden[0].kind if terms.tells_prompts else _DECODES] = floor
    if not any(floors):
        return None
    lowest, prompts, mixed = floors
    return equations.solve(idle)._replace(floor=lowest, prompt_floor=prompts, mixed_floor=mixed)


def _plateau(rows: Sequence[_Row]) -> list[_Row]:
    level = _PLATEAU_FACTOR * min((row.seconds for row in rows), default=0.0)
    return [row for row in rows if row.seconds < level]


def _better(rows: Sequence[_Row], first: Coefficients, second: Coefficients | None) -> Coefficients:
    """Return the second if it is clearly better."""
    if second is None or _loss(rows, second) >= _MIN_FLOOR_GAIN * _loss(rows, first):
        return first
    return second


def _solve(rows: Sequence[_Row], terms: Terms, idle: set[int]) -> Coefficients:
    equations = _Equations(terms)
    equations.add(rows)
    return equations.solve(idle)


class _Equations:
    """Normal equations; the curve's part is kept by knots and solved by rises."""

    def __init__(self, terms: Terms) -> None:
        knots = terms.knots
        self._knots = knots
        self._num_features = _NUM_PLAIN_FEATURES + len(terms.context_knots)
        size = len(knots) + self._num_features
        self._gram: Matrix = [[0.0] * size for _ in range(size)]
        self._moments = [0.0] * size
        self._shortest = [0.0] * len(knots)

    def add(self, rows: Sequence[_Row]) -> None:
        """Count rows in, each as 1 = (its work x coefficients) / (its seconds)."""
        first = len(self._knots)
        gram, moments, shortest = self._gram, self._moments, self._shortest
        for weight, seconds, left, part, _, features in rows:
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
        names = [*(knot.bit_length() for knot in self._knots)]
        names += range(-1, -1 - self._num_features, -1)
        solution = solve_nonnegative(gram, moments, [name not in idle for name in names])
        idle.clear()
        idle.update(name for name, value in zip(names, solution, strict=True) if value == 0.0)
        curve, features = list(accumulate(solution[:count])), solution[count:]
        per_sequence, per_pair, per_prompt_step, per_mixed_step, *per_context_token = features
        return Coefficients(
            curve, per_sequence, per_pair, per_prompt_step, per_mixed_step, per_context_token
        )

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


def _place(load: Load, terms: Terms) -> _Row:
    knots = terms.knots
    left = max(bisect_right(knots, load.tokens) - 1, 0)
    part = 0.0
    if len(knots) > 1:
        left = min(left, len(knots) - 2)
        part = max((load.tokens - knots[left]) / (knots[left + 1] - knots[left]), 0.0)
    has_prompts = load.tokens > load.num_decodes
    has_both = has_prompts and load.num_decodes > 0
    is_launched = has_prompts and not is_padded(load.tokens, terms.padded_tokens)
    kind = _DECODES if not is_launched else _MIXED if has_both else _PROMPTS
    told = float(terms.has_prompt_constant and has_prompts)
    told_both = float(terms.has_prompt_constant and has_both)
    stretches = _stretch(load.context_tokens, terms.context_knots)
    features = (load.num_decodes, load.pairs, told, told_both, *stretches)
    return _Row(load.weight, load.seconds, left, part, kind, features)


def _stretch(context_tokens: float, knots: Sequence[int]) -> list[float]:
    """How many of the context tokens lie between each knot and the next."""
    ends = [*knots[1:], inf]
    return [
        max(min(context_tokens, end) - start, 0.0) for start, end in zip(knots, ends, strict=True)
    ]


def _device_seconds(row: _Row, fitted: Coefficients) -> float:
    seconds = fitted.curve[row.left]
    if row.part:
        seconds += row.part * (fitted.curve[row.left + 1] - seconds)
    decodes, pairs, prompts, mixed, *context = row.features
    attention: float = sum(map(mul, context, fitted.per_context_token))
    return (
        seconds
        + decodes * fitted.per_sequence
        + pairs * fitted.per_pair
        + prompts * fitted.per_prompt_step
        + mixed * fitted.per_mixed_step
        + attention
    )


def _seconds(row: _Row, fitted: Coefficients) -> float:
    floors = (fitted.floor, fitted.prompt_floor, fitted.mixed_floor)
    return max(_device_seconds(row, fitted), *floors[: row.kind + 1])


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
        error = _seconds(row, fitted) / row.seconds - 1.0
        loss += row.weight * error * error
    return loss
