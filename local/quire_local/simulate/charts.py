"""Charts as inline SVG: lines and stacked areas over time. Colours are the page's."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from quire_local.words import plain

WIDTH, HEIGHT = 640, 198
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 8, 12, 26
_HALF = 40
"""Of the widest time below, as phones show it: in letters nearly twice as large."""
_MOST_POINTS = 600
_GRID = 4
"""Parts of the scale."""
_LEAST = 0.01
"""Of a scale's end: where all is nothing."""
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200)
_MOST_TICKS = 6


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, or one layer."""

    name: str
    points: Sequence[tuple[float, float]]
    """(seconds, value), in order."""
    hue: int
    """Which of the page's hues."""


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    unit: str = "",
    highest: float | None = None,
    mark: float | None = None,
    is_stacked: bool = False,
    is_count: bool = False,
    moments: Sequence[float] = (),
) -> str:
    """Draw values over time.

    Parameters
    ----------
    label
        What it shows, for those who hear it.
    highest
        Upper end of the scale; None: what the values need.
    mark
        A value with a line across.
    is_stacked
        Draw steps on top of each other, filled.
    is_count
        Values are whole numbers, and so is the scale.
    moments
        Times with a line from top to bottom.
    """
    drawn = [Series(name=s.name, points=_thin(s.points), hue=s.hue) for s in series]
    if is_stacked:
        drawn = _stack(drawn)
    last = max((s.points[-1][0] for s in drawn if s.points), default=1.0) or 1.0
    most = max((value for s in drawn for _, value in s.points), default=1.0)
    top = highest if highest is not None else _round_up(max(most, mark or 0.0, _LEAST))
    if is_count:
        top = _GRID * math.ceil(top / _GRID)
    frame = Frame(last, top)
    parts = [frame.grid(unit)]
    # of layers the highest comes first: the others cover it
    parts += map(frame.area, reversed(drawn)) if is_stacked else map(frame.line, drawn)
    parts += map(frame.moment, moments)
    if mark is not None and mark <= top:
        y = frame.y(mark)
        parts.append(f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def band_chart(bands: Sequence[tuple[float, float, str, int]], *, last: float, label: str) -> str:
    """Draw which of several things was so, as coloured bands: (from, to, name, hue)."""
    frame = Frame(last or 1.0, 1.0)
    parts = [
        f'<rect x="{frame.x(start)}" width="{max(frame.x(end) - frame.x(start), 0.2):.1f}" y="0"'
        f' height="14" class="fill-{hue}"><title>{escape(name)}</title></rect>'
        for start, end, name, hue in bands
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} 14" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


class Frame:
    """Where values are drawn."""

    def __init__(self, last: float, top: float) -> None:
        self._last = last
        self._top = top

    def x(self, seconds: float) -> float:
        """Of a time."""
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * seconds / self._last, 1)

    def y(self, value: float) -> float:
        """Of a value."""
        share = min(max(value / self._top, 0.0), 1.0)
        return round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share, 1)

    def grid(self, unit: str) -> str:
        """Lines and what they stand for."""
        parts = []
        for step in range(_GRID + 1):
            value = self._top * step / _GRID
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
            )
            parts.append(
                f'<text x="{_LEFT - 5}" y="{y + 4}" text-anchor="end">{plain(value)}{unit}</text>'
            )
        for seconds in _ticks(self._last):
            x = self.x(seconds)
            anchor = "start" if not seconds else "end" if x > WIDTH - _HALF else "middle"
            parts.append(
                f'<text x="{x}" y="{HEIGHT - 5}" text-anchor="{anchor}">'
                f"{_time(seconds, self._last)}</text>"
            )
        return "".join(parts)

    def moment(self, seconds: float) -> str:
        """A line across all values."""
        x = self.x(min(seconds, self._last))
        return f'<line class="moment" x1="{x}" x2="{x}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'

    def line(self, series: Series) -> str:
        """A line through all points."""
        points = " ".join(f"{self.x(at)},{self.y(value)}" for at, value in series.points)
        return (
            f'<polyline class="line-{series.hue}" points="{points}">'
            f"<title>{escape(series.name)}</title></polyline>"
        )

    def area(self, series: Series) -> str:
        """Steps, filled down to nothing."""
        if not series.points:
            return ""
        path = [f"M{self.x(series.points[0][0])},{self.y(0)}", f"V{self.y(series.points[0][1])}"]
        for _, (at, value) in pairwise(series.points):
            path += [f"H{self.x(at)}", f"V{self.y(value)}"]
        path += [f"H{self.x(self._last)}", f"V{self.y(0)}Z"]
        return (
            f'<path class="fill-{series.hue}" d="{"".join(path)}">'
            f"<title>{escape(series.name)}</title></path>"
        )


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many points; of each group the largest, so that no peak is lost."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    size = -(-len(points) // _MOST_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[0][0], max(value for _, value in group)) for group in groups]


def _stack(series: Sequence[Series]) -> list[Series]:
    """Each on top of those before; all have the same times."""
    below = [0.0] * max((len(one.points) for one in series), default=0)
    stacked = []
    for one in series:
        below = [low + value for low, (_, value) in zip(below, one.points, strict=True)]
        points = [(at, value) for (at, _), value in zip(one.points, below, strict=True)]
        stacked.append(Series(name=one.name, points=points, hue=one.hue))
    return stacked


def _round_up(value: float) -> float:
    """A round number above."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(
        power * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if power * step >= value
    )


def _ticks(last: float) -> list[float]:
    """Round times up to the last one, a few."""
    days = (86_400 * count for count in itertools.count(1))
    step = next(one for one in itertools.chain(_TICKS, days) if last / one < _MOST_TICKS)
    return [float(step * count) for count in range(int(last // step) + 1)]


def _time(seconds: float, last: float) -> str:
    """A time in the unit that suits the whole axis."""
    if last < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.4g} min" if last < 3 * 3600 else f"{seconds / 3600:.4g} h"
