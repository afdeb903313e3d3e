"""Those that wait for room: interactive ones first, fair between keys, each until its deadline.

Fair means by what requests cost, not by their number: each key has a clock that goes on by the
cost of what it got, and the key whose clock is behind is next. A key that comes anew starts where
those that wait are, so that nobody saves up turns.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice, zip_longest


@dataclass(slots=True, eq=False)
class Waiting:
    """One request in the queue."""

    key: Hashable
    """Whose it is."""
    is_background: bool
    cost: float
    """In blocks, above 0."""
    arrived_at: float
    leaves_at: float
    """When it is refused."""


@dataclass(slots=True)
class _Line:
    """The requests of one key, of one class."""

    clock: float
    waiting: dict[Waiting, None] = field(default_factory=dict)
    """In the order of arrival."""


class FairQueue:
    """A bounded queue.

    Parameters
    ----------
    max_waiting
        Most requests in it.
    """

    def __init__(self, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self._lines: tuple[dict[Hashable, _Line], dict[Hashable, _Line]] = ({}, {})
        self._clocks = [0.0, 0.0]
        """Of the last turn, by class."""
        self._left: tuple[dict[Hashable, float], dict[Hashable, float]] = ({}, {})
        """Clocks of keys of which nothing waits; as many as there are keys at most."""
        self._length = 0
        self.total_cost = 0.0

    def __len__(self) -> int:
        return self._length

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return self._length >= self.max_waiting

    def __iter__(self) -> Iterator[Waiting]:
        for lines in self._lines:
            for line in lines.values():
                yield from line.waiting

    def add(self, waiting: Waiting) -> None:
        """Put a request behind the others of its key; the caller has looked whether it is full."""
        lines, clock = self._lines[waiting.is_background], self._clocks[waiting.is_background]
        line = lines.get(waiting.key)
        if line is None:
            own_clock = self._left[waiting.is_background].pop(waiting.key, 0.0)
            line = lines[waiting.key] = _Line(max(clock, own_clock))
        line.waiting[waiting] = None
        self._length += 1
        self.total_cost += waiting.cost

    def heads(self, most: int) -> list[Waiting]:
        """Return whose turns are next: the first of each key, then those behind; interactive first.

        Those behind are there to be looked at when the first find no engine: a long prompt that
        none computes in time does not hold up all others of its key.
        """
        firsts: list[list[_Line]] = []
        room = most
        for lines in self._lines:
            firsts.append(nsmallest(room, lines.values(), key=lambda one: one.clock))
            room -= len(firsts[-1])
        heads: list[Waiting] = []
        for next_lines in firsts:
            heads += [next(iter(line.waiting)) for line in next_lines]
            turns = zip_longest(*(islice(line.waiting, 1, most) for line in next_lines))
            behind = (one for turn in turns for one in turn if one is not None)
            before = len(heads)
            heads += islice(behind, room)
            room -= len(heads) - before
        return heads

    def take(self, waiting: Waiting) -> None:
        """It goes to an engine: its key has had its turn."""
        line = self._lines[waiting.is_background][waiting.key]
        self._clocks[waiting.is_background] = max(self._clocks[waiting.is_background], line.clock)
        line.clock += waiting.cost
        self.remove(waiting)

    def remove(self, waiting: Waiting) -> None:
        """It leaves without a turn."""
        lines = self._lines[waiting.is_background]
        line = lines[waiting.key]
        del line.waiting[waiting]
        if not line.waiting:
            del lines[waiting.key]
            self._left[waiting.is_background][waiting.key] = line.clock
        self._length -= 1
        self.total_cost = self.total_cost - waiting.cost if self._length else 0.0

    def overdue(self, now: float) -> list[Waiting]:
        """Return those that have waited as long as they may."""
        return [waiting for waiting in self if waiting.leaves_at <= now]

    def next_leaves_at(self) -> float | None:
        """Return when the next one is overdue."""
        return min((waiting.leaves_at for waiting in self), default=None)
