"""Which engine has which parts of prompts in its cache, as the engines themselves tell it.

    name of a chunk -> bits of the engines that have it

An engine follows a bounded number of chunks, and so does the index of each engine: an engine that
reports ever more is not believed. About 170 bytes a chunk.

What was just sent to an engine counts as there already, until the engine has had the time to tell
it: those that come with the same prompt meanwhile follow the first.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from quire_engine.protocol.state import PrefixChunkLog
from quire_gateway.choosing.text_chunks import read_name

MAX_CHUNKS_PER_ENGINE = 8192
"""Twice what an engine follows."""

EXPECTED_SECONDS = 10.0
"""What an engine was sent and has not told by then was refused, or is gone again."""

Event = tuple[Literal["inserted", "evicted"], str]


class PrefixIndex:
    """Chunks of the engines of one service."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self._chunks: dict[int, set[int]] = {}
        """By engine's slot: for forgetting it."""
        self._next_numbers: dict[int, int] = {}
        """Of the event that each engine tells next."""
        self._expected: dict[int, dict[int, float]] = {}
        """By slot: chunks that were sent and not told of yet, and until when they are believed."""

    def __len__(self) -> int:
        return len(self._holders)

    def join(self) -> int:
        """Return a slot for an engine: its bit in the index."""
        slot = 0
        while slot in self._chunks:
            slot += 1
        self._chunks[slot], self._expected[slot] = set(), {}
        return slot

    def leave(self, slot: int) -> None:
        """Forget an engine; its slot goes to another one."""
        self.forget(slot)
        del self._chunks[slot], self._expected[slot]

    def forget(self, slot: int) -> None:
        """Believe nothing of an engine's cache any more."""
        for name in (*self._chunks[slot], *self._expected[slot]):
            self._drop(name, slot)
        self._chunks[slot].clear()
        self._expected[slot].clear()
        self._next_numbers.pop(slot, None)

    def follow(self, slot: int, log: PrefixChunkLog) -> None:
        """Take an engine's news; where some were missed, all that it said before is forgotten."""
        if self._next_numbers.get(slot) != log.first_number:
            self.forget(slot)
        self._next_numbers[slot] = log.next_number
        self._apply(slot, log.events)

    def expect(self, slot: int, names: Iterable[int], now: float) -> None:
        """A prompt of these chunks goes to an engine."""
        chunks, expected, bit = self._chunks[slot], self._expected[slot], 1 << slot
        if len(expected) >= MAX_CHUNKS_PER_ENGINE:
            return
        for name in names:
            if name not in chunks:
                expected.pop(name, None)
                expected[name] = now + EXPECTED_SECONDS
                self._holders[name] = self._holders.get(name, 0) | bit

    def retract(self, slot: int, names: Iterable[int]) -> None:
        """A prompt of these chunks was not computed there: what it said itself stays."""
        expected = self._expected[slot]
        for name in names:
            if expected.pop(name, None) is not None:
                self._drop(name, slot)

    def expire(self, now: float) -> None:
        """Believe no longer what engines should have told by now."""
        for slot, expected in self._expected.items():
            while expected and expected[name := next(iter(expected))] <= now:
                del expected[name]
                self._drop(name, slot)

    def hits(self, names: Sequence[int]) -> dict[int, int]:
        """Return how many chunks from the prompt's start each engine has, by slot."""
        found: dict[int, int] = {}
        holders = self._holders.get(names[0], 0) if names else 0
        count = 1
        while holders:
            more = holders & self._holders.get(names[count], 0) if count < len(names) else 0
            lost = holders & ~more
            while lost:
                lowest = lost & -lost
                found[lowest.bit_length() - 1] = count
                lost ^= lowest
            holders = more
            count += 1
        return found

    def _apply(self, slot: int, events: Iterable[Event]) -> None:
        chunks, expected, bit = self._chunks[slot], self._expected[slot], 1 << slot
        for what, text in events:
            name = read_name(text)
            if name is None:
                continue
            if what == "inserted":
                if len(chunks) < MAX_CHUNKS_PER_ENGINE:
                    expected.pop(name, None)
                    chunks.add(name)
                    self._holders[name] = self._holders.get(name, 0) | bit
            elif name in chunks:
                chunks.remove(name)
                self._drop(name, slot)

    def _drop(self, name: int, slot: int) -> None:
        rest = self._holders[name] & ~(1 << slot)
        if rest:
            self._holders[name] = rest
        else:
            del self._holders[name]
