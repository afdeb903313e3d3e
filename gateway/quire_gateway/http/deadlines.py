"""Deadlines of many connections by one timer: who is overdue is told up to a tick late.

A deadline is set for every request and hardly ever comes to pass, so that setting one must cost
next to nothing: mostly it is a number. A holder stands in the bucket of the tick at which it has to
be looked at; one whose deadline has moved on by then is put into a later one.
"""

import asyncio
from math import inf
from typing import Protocol

TICK_SECONDS = 0.25


class Holder(Protocol):
    """Who has a deadline."""

    due_at: float
    """Seconds of the event loop; infinite for none."""
    tick: float
    """When it is looked at, in ticks; infinite if it stands in no bucket."""

    def on_due(self) -> None:
        """The deadline has come; there is none any more."""


class Deadlines:
    """Deadlines of one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[float, set[Holder]] = {}
        self._is_timed = False

    def set(self, holder: Holder, seconds: float) -> None:
        """Set a deadline in place of the one that there was."""
        holder.due_at = self._loop.time() + seconds
        if holder.due_at < holder.tick * TICK_SECONDS:
            self._put(holder)

    def forget(self, holder: Holder) -> None:
        """It is gone."""
        holder.due_at = inf
        self._take_out(holder)

    def _put(self, holder: Holder) -> None:
        tick = holder.due_at // TICK_SECONDS + 1
        if tick != holder.tick:
            self._take_out(holder)
            holder.tick = tick
            self._buckets.setdefault(tick, set()).add(holder)
        self._time()

    def _take_out(self, holder: Holder) -> None:
        bucket = self._buckets.get(holder.tick)
        if bucket is not None:
            bucket.discard(holder)
            if not bucket:
                del self._buckets[holder.tick]
        holder.tick = inf

    def _time(self) -> None:
        if self._buckets and not self._is_timed:
            self._is_timed = True
            self._loop.call_later(TICK_SECONDS, self._look)

    def _look(self) -> None:
        self._is_timed = False
        now = self._loop.time()
        for tick in sorted(tick for tick in self._buckets if tick * TICK_SECONDS <= now):
            for holder in list(self._buckets.pop(tick, ())):
                holder.tick = inf
                if holder.due_at <= now:
                    holder.due_at = inf
                    holder.on_due()
                elif holder.due_at < inf:
                    self._put(holder)
        self._time()
