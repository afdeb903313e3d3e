"""Buckets that are alike for all accelerators, put together: this keeps programs small.

Which are alike depends on what they take of the accelerators and on prices, and on rates not at
all. Within a decision the same is asked for many rates, so that it is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quire_operator.scaling.loads import Loads
from quire_operator.scaling.newest import Newest

_MAX_GROUPS = 8
_WIDTHS = tuple(0.05 * 1.25**step for step in range(35))
"""Steps of the logarithms of costs, the finest that makes few enough groups is taken. With the
last, all that the same accelerators serve are alike."""
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
    asked = tuple(index for index, rate in enumerate(rates) if rate > 0)
    if not asked or not loads:
        return []
    grouping = _kept.find(loads, (tuple(costs), asked), lambda: _Grouping(loads, costs, asked))
    return grouping.join(rates)


class _Grouping:
    """Groups for any rates."""

    def __init__(
        self, loads: Sequence[Loads], costs: Sequence[float], asked: tuple[int, ...]
    ) -> None:
        of = list(asked)
        parts = np.array([(one.memory[of], one.time[of]) for one in loads])
        self._members = [tuple(asked[at] for at in members) for members in _split(parts, costs)]
        self._order = np.array([index for members in self._members for index in members])
        self._starts = np.cumsum([0, *(len(members) for members in self._members)])[:-1]
        place = {index: at for at, index in enumerate(asked)}
        parts = parts[:, :, [place[index] for index in self._order]]
        first = parts[:, 0, self._starts]
        self._is_served = np.isfinite(first)
        self._parts = np.where(np.isfinite(parts), parts, 0.0)

    def join(self, rates: Sequence[float]) -> list[Group]:
        """Make the groups."""
        asked = np.array(rates)[self._order]
        sums = np.add.reduceat(self._parts * asked, self._starts, axis=2)
        sums = np.minimum(sums, _MOST_LOAD)
        made = []
        for at, (members, pairs) in enumerate(
            zip(self._members, sums.transpose(2, 0, 1).tolist(), strict=True)
        ):
            loads = tuple(
                (memory, time) if is_served else None
                for (memory, time), is_served in zip(pairs, self._is_served[:, at], strict=True)
            )
            weight = min((max(one) for one in loads if one is not None), default=1.0)
            made.append(Group(members, weight, loads))
        return made


_kept: Newest[_Grouping] = Newest(_MOST_KEPT)


def _split(parts: Any, costs: Sequence[float]) -> list[list[int]]:  # noqa: ANN401 - an array
    """Buckets by kind; parts are [accelerators, memory and time, buckets]."""
    prices = np.maximum(np.array(costs), 1e-6)
    dear = np.log(np.maximum(parts.max(axis=1), 1e-300) * prices[:, None])
    best = dear.min(axis=0)
    best[~np.isfinite(best)] = 0.0  # nobody can serve these
    is_served = np.isfinite(dear)
    dear = np.where(is_served, dear - best, 0.0)
    for width in _WIDTHS[:-1]:
        if (kinds := _kinds(dear / width, is_served, _MAX_GROUPS)) is not None:
            return kinds
    return _kinds(dear / _WIDTHS[-1], is_served, dear.shape[1]) or []


def _kinds(dear: Any, is_served: Any, most: int) -> list[list[int]] | None:  # noqa: ANN401 - arrays
    """Buckets by their steps [accelerators, buckets]; None: they are of more kinds than that."""
    kinds: dict[bytes, list[int]] = {}
    steps = np.where(is_served, np.rint(dear), _NOT_SERVED)
    for at, row in enumerate(np.ascontiguousarray(steps.T.astype(np.int32))):
        kinds.setdefault(row.tobytes(), []).append(at)
        if len(kinds) > most:
            return None
    return list(kinds.values())
