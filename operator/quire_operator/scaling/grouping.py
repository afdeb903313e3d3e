"""Buckets that are alike for all accelerators, put together: this keeps programs small.

Which are alike depends on what they take of the accelerators and on prices, and on rates not at
all. Within a decision the same is asked for many rates, so that it is kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quire_operator.scaling.lengths import Array
from quire_operator.scaling.loads import Loads
from quire_operator.scaling.newest import Newest

_MAX_GROUPS = 8
_WIDTHS = np.array([0.05 * 1.25**step for step in range(35)])
"""Steps of the logarithms of costs, the finest that makes few enough groups is taken. With the
last, all that the same accelerators serve are alike."""
_AT_A_TIME = 6
"""Widths that are tried together."""
_FACTORS = np.random.default_rng(0).integers(1, 1 << 30, size=32).astype(float)
"""By accelerator. Steps times these are added exactly: they are whole, and below 2^53."""
_NOT_SERVED = -1
_MOST_KEPT = 16
_MOST_LOAD = 1e12
"""Of a group: above it is far too much, and numbers are too large for the program."""


@dataclass(frozen=True, slots=True)
class Group:
    """Buckets that are alike, as one."""

    members: tuple[int, ...]
    weight: float
    """Its load on the accelerator that it is least for."""
    loads: tuple[tuple[float, float] | None, ...]
    """Memory and time by accelerator."""

    @property
    def is_served(self) -> bool:
        """Whether any accelerator can serve them."""
        return any(load is not None for load in self.loads)

    def of(self, are_used: Sequence[bool]) -> "Group":
        """The same where only these accelerators are used."""
        loads = zip(self.loads, are_used, strict=True)
        return replace(self, loads=tuple(load if is_used else None for load, is_used in loads))


def group_alike(
    loads: Sequence[Loads], costs: Sequence[float], rates: Sequence[float]
) -> list[Group]:
    """Put buckets together whose costs on all accelerators are in about the same proportions.

    Parameters
    ----------
    costs
        Of a replica of each accelerator, an hour.
    rates
        By bucket; those that nobody asks for are left out.
    """
    asked = np.array(rates)
    is_asked = asked > 0
    if not loads or not is_asked.any():
        return []
    grouping = _kept.find(
        loads, (*costs, is_asked.tobytes()), lambda: _Grouping(loads, costs, is_asked)
    )
    return grouping.join(asked)


class _Grouping:
    """Groups for any rates."""

    def __init__(self, loads: Sequence[Loads], costs: Sequence[float], is_asked: Array) -> None:
        asked = np.flatnonzero(is_asked)
        parts = np.array([part for one in loads for part in (one.memory, one.time)])[:, asked]
        parts = parts.reshape(len(loads), 2, len(asked))
        kinds = _split(parts, costs)
        order = [at for kind in kinds for at in kind]
        self._order = asked[order]
        ends = np.cumsum([len(kind) for kind in kinds])
        self._starts = ends - [len(kind) for kind in kinds]
        indices = self._order.tolist()
        self._members = [
            tuple(indices[start:end])
            for start, end in zip(self._starts.tolist(), ends.tolist(), strict=True)
        ]
        parts = parts[:, :, order]
        self._is_served = np.isfinite(parts[:, 0, self._starts])
        self._served = self._is_served.T.tolist()
        self._parts = np.where(np.isfinite(parts), parts, 0.0)

    def join(self, rates: Array) -> list[Group]:
        """Make the groups."""
        sums = np.add.reduceat(self._parts * rates[self._order], self._starts, axis=2)
        sums = np.minimum(sums, _MOST_LOAD)
        weights = np.where(self._is_served, sums.max(axis=1), math.inf).min(axis=0).tolist()
        return [
            Group(
                members,
                weight if weight < math.inf else 1.0,
                tuple(
                    (memory, time) if is_served else None
                    for (memory, time), is_served in zip(pairs, served, strict=True)
                ),
            )
            for members, weight, pairs, served in zip(
                self._members, weights, sums.transpose(2, 0, 1).tolist(), self._served, strict=True
            )
        ]


_kept: Newest[_Grouping] = Newest(_MOST_KEPT)


def _split(parts: Array, costs: Sequence[float]) -> list[list[int]]:
    """Buckets by kind; parts are [accelerators, memory and time, buckets]."""
    prices = np.maximum(np.array(costs), 1e-6)
    dear = np.log(np.maximum(parts.max(axis=1), 1e-300) * prices[:, None])
    best = dear.min(axis=0)
    best[~np.isfinite(best)] = 0.0  # nobody can serve these
    is_served = np.isfinite(dear)
    dear = np.where(is_served, dear - best, 0.0)
    for at in range(_first_width(dear, is_served), len(_WIDTHS) - 1, _AT_A_TIME):
        for width in _wide_enough(dear, is_served, _WIDTHS[at : at + _AT_A_TIME]):
            kinds = _kinds(dear / width, is_served)
            if len(kinds) <= _MAX_GROUPS:
                return kinds
    return _kinds(dear / _WIDTHS[-1], is_served)


def _first_width(dear: Array, is_served: Array) -> int:
    """Number of the first width that may make few enough kinds.

    By one accelerator alone, that whose costs differ most: it tells as many apart as it has steps.
    """
    widest = int(dear.max(axis=1).argmax())
    costs = np.sort(dear[widest][is_served[widest]])
    steps = np.rint(costs / _WIDTHS[:, None])
    nums = (steps[:, 1:] != steps[:, :-1]).sum(axis=1) + 1
    return int((nums <= _MAX_GROUPS).argmax())


def _wide_enough(dear: Array, is_served: Array, widths: Array) -> Array:
    """Those of these widths that may make few enough kinds: several in the time of one.

    By a number for each bucket, that is the same where its steps are. Others may have the same,
    too, so that none of these widths is missed.
    """
    steps = np.where(is_served, np.rint(dear / widths[:, None, None]), _NOT_SERVED)
    factors = np.resize(_FACTORS, len(dear))
    numbers = np.sort(factors @ steps, axis=1)
    nums = (numbers[:, 1:] != numbers[:, :-1]).sum(axis=1) + 1
    found: Array = widths[nums <= _MAX_GROUPS]
    return found


def _kinds(dear: Array, is_served: Array) -> list[list[int]]:
    """Buckets by their steps [accelerators, buckets]."""
    steps = np.where(is_served, np.rint(dear), _NOT_SERVED).T.astype(np.int32)
    rows = np.ascontiguousarray(steps).view(f"V{steps.itemsize * steps.shape[1]}").ravel().tolist()
    kinds: dict[bytes, list[int]] = {}
    for at, row in enumerate(rows):
        kinds.setdefault(row, []).append(at)
    return list(kinds.values())
