"""Steps that were measured, kept so that a model can be fitted to them at any time.

    step -> cell by (octave of tokens, double octaves of context and of pairs) -> newest steps
    cell -> point: mean work and mean seconds, without hiccups and without what is out of date

Cells keep rare loads alive beside a load that fills every step, and bound the memory: the cell
seen longest ago makes room for a new one. Within a cell the seconds of healthy steps differ by a
small factor, so that its median tells a hiccup from a long step before any model exists.
"""

from collections import OrderedDict, deque
from operator import add
from typing import NamedTuple

from quire_engine.profiles.step_time import pad_tokens

MAX_CELLS = 96
SAMPLES_PER_CELL = 16
NUM_RECENT = 128
"""Newest steps kept beside the cells, whatever their load."""

MIN_SECONDS, MAX_SECONDS = 1e-9, 86_400.0
"""Outside of these, a clock went wrong: such a step is dropped."""
MAX_WORK = 1 << 50
"""More tokens or pairs than that in one step are a mistake of the caller's."""

_MIN_SAMPLES = 2
_ENOUGH_SAMPLES = 4
"""So many outdated ones stand for a cell that has no others."""
_HICCUP_FACTOR = 2.5
"""A step that differs by more from the median of its cell counts for nothing."""

Sample = tuple[float, int, int, int, int, int]
"""(seconds, decodes, context tokens, prefill tokens, pairs, number of the observation)."""


class Point(NamedTuple):
    """One load and the seconds it takes: means over the samples of a cell."""

    seconds: float
    tokens: float
    num_decodes: float
    context_tokens: float
    pairs: float
    num_samples: int
    newest: int
    """Number of the newest observation in it."""
    tokens_range: tuple[int, int]
    most: tuple[int, int, int]
    """Most decodes, context tokens and prefill tokens in a sample."""


class StepEvidence:
    """Measured steps in bounded memory.

    Parameters
    ----------
    padded_tokens
        What steps with prompts are padded to: see `StepTimeModel`.
    """

    def __init__(self, padded_tokens: tuple[int, ...] = ()) -> None:
        self._padded_tokens = padded_tokens
        self.num_observed = 0
        self.num_dropped = 0
        self.recent: deque[Sample] = deque(maxlen=NUM_RECENT)
        self._outdated = 0
        self._cells: OrderedDict[int, deque[Sample]] = OrderedDict()
        self._points: dict[int, Point] = {}
        self._touched: set[int] = set()

    def add(
        self,
        num_decodes: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_pairs: int,
        seconds: float,
    ) -> None:
        """Keep a step in O(1); one without work, or that no clock can have measured, is dropped."""
        tokens = num_decodes + prefill_tokens
        if not (
            MIN_SECONDS <= seconds <= MAX_SECONDS
            and 0 < tokens <= MAX_WORK
            and num_decodes >= 0
            and prefill_tokens >= 0
            and 0 <= context_tokens <= MAX_WORK
            and 0 <= prefill_pairs <= MAX_WORK
        ):
            self.num_dropped += 1
            return
        self.num_observed = number = self.num_observed + 1
        sample = (seconds, num_decodes, context_tokens, prefill_tokens, prefill_pairs, number)
        self.recent.append(sample)
        context_octave = context_tokens.bit_length() >> 1
        pairs_octave = prefill_pairs.bit_length() >> 1
        key = (tokens.bit_length() << 10) | (context_octave << 5) | pairs_octave
        cell = self._cells.get(key)
        if cell is None:
            cell = self._open(key)
        else:
            self._cells.move_to_end(key)
        cell.append(sample)
        self._touched.add(key)

    def points(self) -> list[Point]:
        """One point for each cell that has been seen often enough to be believed."""
        for key in self._touched:
            point = _summarise(self._cells[key], self._outdated, self._padded_tokens)
            if point is None:
                self._points.pop(key, None)
            else:
                self._points[key] = point
        self._touched.clear()
        return list(self._points.values())

    def outdate(self, number: int) -> None:
        """Let observations up to this number count only in cells that have no newer ones."""
        self._outdated = number
        self._touched.update(self._cells)

    def _open(self, key: int) -> deque[Sample]:
        if len(self._cells) >= MAX_CELLS:
            oldest, _ = self._cells.popitem(last=False)
            self._points.pop(oldest, None)
            self._touched.discard(oldest)
        cell = self._cells[key] = deque(maxlen=SAMPLES_PER_CELL)
        return cell


def _summarise(cell: deque[Sample], outdated: int, padded_tokens: tuple[int, ...]) -> Point | None:
    """The means of a cell, tokens padded; None while one hiccup could pass for the truth."""
    samples = list(cell)
    if samples[0][-1] <= outdated:
        fresh = [sample for sample in samples if sample[-1] > outdated]
        samples = fresh if len(fresh) >= _MIN_SAMPLES else samples[-_ENOUGH_SAMPLES:]
    newest = samples[-1][-1]
    samples = sorted(samples)
    # of two, the shorter: hiccups are long
    median = samples[(len(samples) - 1) // 2][0]
    low, high = median / _HICCUP_FACTOR, median * _HICCUP_FACTOR
    if not (low <= samples[0][0] and samples[-1][0] <= high):
        samples = [sample for sample in samples if low <= sample[0] <= high]
    count = len(samples)
    if count < _MIN_SAMPLES:
        return None
    seconds, decodes, context, prefills, pairs, _ = zip(*samples, strict=True)
    tokens = list(map(add, decodes, prefills))
    if padded_tokens:
        tokens = [
            pad_tokens(count, padded_tokens) if prefill else count
            for count, prefill in zip(tokens, prefills, strict=True)
        ]
    return Point(
        seconds=sum(seconds) / count,
        tokens=sum(tokens) / count,
        num_decodes=sum(decodes) / count,
        context_tokens=sum(context) / count,
        pairs=sum(pairs) / count,
        num_samples=count,
        newest=newest,
        tokens_range=(min(tokens), max(tokens)),
        most=(max(decodes), max(context), max(prefills)),
    )
