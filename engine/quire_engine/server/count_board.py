"""Numbers of all API processes in one piece of memory: each writes its own, everyone reads all.

    segment of worker 0   │ used, open connections, ... │ arrivals │ entry │ entry │ ...   free │
    segment of worker 1   │ used, open connections, ... │ arrivals │ entry │ ...                │
    entry                 │ length of key, number of values │ key (msgpack) │ values (float64) │

So a scrape at any worker sees what all have counted, without asking them. A worker that is killed
loses nothing, for the memory is not its own; the one that takes its place goes on in its segment.
Adding is a load and a store of eight bytes: cheap enough for the path that every token takes.
"""

import mmap
from collections.abc import Iterator
from enum import IntEnum
from typing import TypeAlias

import msgspec

SEGMENT_BYTES = 512 << 10
"""Of each worker; only what is written takes memory. Labels are of bounded sets and fill a part."""
_WORD_BYTES = 8

Labels = tuple[str, ...]
Cells: TypeAlias = "memoryview[float]"
"""Float64 numbers in the memory of all."""


class Gauge(IntEnum):
    """What a worker has at the moment; gone when it dies."""

    CONNECTIONS = 1
    """Open HTTP connections."""
    REQUESTS = 2
    """HTTP requests being answered by the core."""
    SEQUENCES = 3
    """Sequences that have begun and not ended."""
    ACCEPTING = 4
    """1 while it takes connections, else 0."""


NUM_ARRIVALS = 64
"""Pairs of numbers in each segment, for gateways whose requests are on their way."""
_FIRST_ARRIVAL = 1 + len(Gauge)
_HEADER_WORDS = _FIRST_ARRIVAL + 2 * NUM_ARRIVALS
_USED = 0
"""The first word of a segment: words in use. Written last, so that no reader sees half an entry."""


class CountBoard:
    """One process's view of the memory.

    Parameters
    ----------
    memory
        `num_segments` times `SEGMENT_BYTES`, zero at first.
    own
        The segment that this process writes; no other process may at the same time.
    """

    def __init__(self, memory: mmap.mmap, *, num_segments: int, own: int) -> None:
        words: Cells = memoryview(memory).cast("d")
        size = SEGMENT_BYTES // _WORD_BYTES
        self._segments = [words[i * size : (i + 1) * size] for i in range(num_segments)]
        self._own = own
        self._scanned = [_HEADER_WORDS] * num_segments
        self._entries: list[dict[tuple[str, Labels], Cells]] = [{} for _ in range(num_segments)]

    @classmethod
    def alone(cls) -> "CountBoard":
        """The board of the only process."""
        return cls(mmap.mmap(-1, SEGMENT_BYTES), num_segments=1, own=0)

    @property
    def is_shared(self) -> bool:
        """Whether other processes count on it, too."""
        return len(self._segments) > 1

    def open(self, name: str, labels: Labels, num_values: int) -> Cells:
        """The cells of these labels in the own segment: as they were left, or new ones of 0."""
        self._scan(self._own)
        entries = self._entries[self._own]
        if (name, labels) not in entries:
            self._append(msgspec.msgpack.encode((name, labels)), num_values)
            self._scan(self._own)
        return entries[name, labels]

    def totals(self, name: str) -> dict[Labels, list[float]]:
        """Sums over all workers, by labels."""
        totals: dict[Labels, list[float]] = {}
        for labels, cells in self._cells_of(name):
            before = totals.get(labels, [0.0] * len(cells))
            totals[labels] = [mine + other for mine, other in zip(before, cells, strict=True)]
        return totals

    def gauge(self, kind: Gauge) -> Cells:
        """The own gauge, one cell."""
        return self._segments[self._own][kind : kind + 1]

    def gauges(self, kind: Gauge) -> list[int]:
        """The gauge of each worker."""
        return [int(segment[kind]) for segment in self._segments]

    @property
    def own_arrivals(self) -> Cells:
        """The own pairs, which `GatewayArrivals` writes."""
        return self._segments[self._own][_FIRST_ARRIVAL:_HEADER_WORDS]

    def others_arrivals(self) -> Iterator[Cells]:
        """The pairs of each other worker."""
        for number, segment in enumerate(self._segments):
            if number != self._own:
                yield segment[_FIRST_ARRIVAL:_HEADER_WORDS]

    def clear_gauges(self) -> None:
        """The worker of the own segment is gone: it has nothing any more."""
        for kind in Gauge:
            self.gauge(kind)[0] = 0.0
        for index in range(2 * NUM_ARRIVALS):
            self.own_arrivals[index] = 0.0

    def _cells_of(self, name: str) -> Iterator[tuple[Labels, Cells]]:
        for number, entries in enumerate(self._entries):
            self._scan(number)
            for (entry_name, labels), cells in entries.items():
                if entry_name == name:
                    yield labels, cells

    def _append(self, key: bytes, num_values: int) -> None:
        segment = self._segments[self._own]
        start = int(segment[_USED]) or _HEADER_WORDS
        num_key_words = -(-len(key) // _WORD_BYTES)
        end = start + 2 + num_key_words + num_values
        if end > len(segment):
            raise RuntimeError("bug: more labels than the memory of counters has room for")
        segment[start], segment[start + 1] = float(len(key)), float(num_values)
        place = segment[start + 2 : start + 2 + num_key_words].cast("B")
        place[: len(key)] = key
        segment[_USED] = float(end)

    def _scan(self, number: int) -> None:
        """Note the entries that a segment has got since the last look; none is ever removed."""
        segment, start = self._segments[number], self._scanned[number]
        end = int(segment[_USED])
        while start < end:
            num_key_bytes, num_values = int(segment[start]), int(segment[start + 1])
            first = start + 2 + -(-num_key_bytes // _WORD_BYTES)
            key = bytes(segment[start + 2 : first].cast("B")[:num_key_bytes])
            name, labels = msgspec.msgpack.decode(key, type=tuple[str, Labels])
            self._entries[number][name, labels] = segment[first : first + num_values]
            start = first + num_values
        self._scanned[number] = start
