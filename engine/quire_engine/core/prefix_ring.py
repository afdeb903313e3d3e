"""Prefix-chunk events of one engine, numbered so that a reader can tell a gap.

The newest are kept as they came. Who comes later than that gets what is in the cache instead, as if
it had just been inserted: a gateway that restarts knows what the one before it knew.
"""

from collections import deque
from typing import Literal

import msgspec

from quire_engine.protocol.messages import PrefixChunks

NUM_KEPT = 1024
"""Events that are kept for readers that are a little late."""

PrefixEvent = tuple[Literal["inserted", "evicted"], str]
"""What happened to a chunk, and its name."""


class RingContent(msgspec.Struct, kw_only=True, frozen=True):
    """What a ring holds, for a process that is to have the same."""

    events: list[PrefixEvent] = []
    present: list[str] = []
    """Chunks that are in the cache, as far as events have told."""
    next_number: int = 0
    """Number of the next event."""
    expected: int = 0
    """Number that the core will give the next event."""


class PrefixRing:
    """Events in order; what a reader cannot get any more is a jump in the numbers."""

    def __init__(self, content: RingContent | None = None) -> None:
        content = content or RingContent()
        self._events: deque[PrefixEvent] = deque(content.events, maxlen=NUM_KEPT)
        self._present: dict[str, None] = dict.fromkeys(content.present)
        self.next_number = content.next_number
        self._expected = content.expected

    def content(self) -> RingContent:
        """Everything, to make another ring of."""
        return RingContent(
            events=list(self._events),
            present=list(self._present),
            next_number=self.next_number,
            expected=self._expected,
        )

    def take(self, news: PrefixChunks) -> None:
        """Add what the core says; when a message was missed, begin anew behind a gap."""
        if news.first_number != self._expected:
            self.clear()
        self._expected = news.first_number + len(news.events)
        self.next_number += len(news.events)
        for has_come, name in news.events:
            self._events.append(("inserted" if has_come else "evicted", name))
            if has_come:
                self._present[name] = None
            else:
                self._present.pop(name, None)

    def clear(self) -> None:
        """Forget all, leaving a gap: an event was missed, or the core and its cache are gone."""
        self._events.clear()
        self._present.clear()
        self._expected = 0
        self.next_number += 1

    def since(self, number: int) -> tuple[int, list[PrefixEvent]]:
        """Return the events from `number` on, and the number of the first of them.

        It is another than `number` when some are gone: the events then tell all that there is now.
        """
        skipped = number - (self.next_number - len(self._events))
        if skipped >= 0:
            return number, list(self._events)[skipped:]
        names = list(self._present)
        if self.next_number - len(names) == number > 0:
            del names[0]  # or they would seem to follow what the reader knows
        return self.next_number - len(names), [("inserted", name) for name in names]
