"""Which numbers of rows have a CUDA graph: a decode step takes the narrowest that holds it."""

from bisect import bisect_left
from collections.abc import Iterable

_SMALL = (1, 2, 4, 8)
_STEP, _WIDE_FROM, _WIDE_STEP = 8, 256, 32


def graph_widths(max_num_seqs: int) -> tuple[int, ...]:
    """Return the widths, ascending: 1, 2, 4, then steps of 8 to 256, then of 32.

    The last one is `max_num_seqs` itself: every decode step fits a graph.
    """
    wide = range(_WIDE_FROM + _WIDE_STEP, max_num_seqs, _WIDE_STEP)
    widths = {*_SMALL, *range(2 * _STEP, _WIDE_FROM + 1, _STEP), *wide}
    return (*sorted(width for width in widths if width < max_num_seqs), max_num_seqs)


def first_widths(widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return those captured before the engine is ready, the widest first.

    The widest takes the most memory, which the others then share; it also serves every batch
    until its own graph is there. One row is what an idle engine's first request needs.
    """
    return tuple(dict.fromkeys((widths[-1], *(w for w in (1, 8) if w in widths))))


def width_for(widths: Iterable[int], num_rows: int) -> int | None:
    """Return the narrowest of some widths that holds `num_rows`, or None."""
    ordered = sorted(widths)
    index = bisect_left(ordered, num_rows)
    return ordered[index] if index < len(ordered) else None
