"""Which services need a look: a set that coalesces, with a wait that grows after failures.

A key is in the queue once, however often it is added, and never worked on by two workers: one that
is added meanwhile is looked at again afterwards.
"""

import asyncio
import heapq
import random
from collections.abc import Callable

from quire_operator.cluster.store import Key

_FIRST_SECONDS = 0.5
_MOST_SECONDS = 60.0


class WorkQueue:
    """Keys that need a look."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ready: dict[Key, None] = {}
        """In order of arrival."""
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        """Added while they were worked on."""
        self._later: list[tuple[float, Key]] = []
        self._due: dict[Key, float] = {}
        """When each of the later ones is due; entries of the heap that differ are stale."""
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        """A key needs a look now."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        else:
            self._ready[key] = None
            self._changed.set()

    def add_later(self, key: Key, delay_seconds: float) -> None:
        """A key needs a look in a while, unless it gets one sooner."""
        due = self._clock() + max(delay_seconds, 0.0)
        if key in self._ready or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, key))
        self._changed.set()

    async def take(self) -> Key:
        """The next key; it is not given to another worker until it is done."""
        while True:
            self._changed.clear()
            wait = self._promote()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._working.add(key)
                if self._ready:
                    self._changed.set()
                return key
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """A key was looked at, and all went well."""
        self._failures.pop(key, None)
        self._release(key)

    def num_failures(self, key: Key) -> int:
        """Looks at a key that failed since the last one that went well."""
        return self._failures.get(key, 0)

    def failed(self, key: Key) -> float:
        """A look failed; returns after how many seconds it is tried again."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        most: float = min(_FIRST_SECONDS * 2 ** min(failures - 1, 10), _MOST_SECONDS)
        delay = most * random.uniform(0.5, 1.0)
        self._release(key)
        self.add_later(key, delay)
        return delay

    def _release(self, key: Key) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> float | None:
        """Move what is due; returns the seconds until the next is."""
        now = self._clock()
        while self._later:
            due, key = self._later[0]
            if self._due.get(key) != due:
                heapq.heappop(self._later)
            elif due > now:
                return due - now
            else:
                heapq.heappop(self._later)
                self.add(key)
        return None
