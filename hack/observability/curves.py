"""One diagram as SVG: axes in the panel's unit, curves, areas, a limit, and a legend."""

import html
import math
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

from hack.observability.panels import Panel

_COLOURS = (
    "#3274d9",
    "#56a64b",
    "#e0752d",
    "#a352cc",
    "#c4162a",
    "#1f9e9e",
    "#b58900",
    "#705da0",
    "#508642",
    "#7f7f7f",
)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 600, 190, 68, 20, 8
_NUM_STEPS = 4
_LIGHTER, _NUM_SHADES = 0.3, 3

Point = tuple[float, float]
"""Seconds since the epoch, and a value."""


class Curve(NamedTuple):
    """One series."""

    name: str
    points: list[Point]
    colour: str = ""
    """Of which it is a shade; without one it has the next of a palette."""

    @property
    def last(self) -> float:
        """The newest value; NaN where there is none."""
        return self.points[-1][1] if self.points else math.nan


def draw(panel: Panel, curves: list[Curve]) -> str:
    """The diagram with its legend."""
    drawn = _stacked(curves) if panel.kind == "stacked" else curves
    values = [value for one in drawn for _, value in one.points if math.isfinite(value)]
    highest = max([*values, panel.edge or 0.0, 0.0]) or 1.0
    step = _step(highest, whole=panel.unit == "none")
    num_steps = math.ceil(highest / step - 1e-9)
    top = step * num_steps
    colours = _colours(curves)
    times = [at for one in drawn for at, _ in one.points]
    first, last = min(times), max(max(times), min(times) + 1)

    def place(point: Point) -> str:
        x = _LEFT + (point[0] - first) / (last - first) * (_WIDTH - _LEFT - 8)
        y = _TOP + (1 - max(point[1], 0.0) / top) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [_axes(panel.unit, step, num_steps, first, last)]
    order = range(len(drawn) - 1, -1, -1) if panel.kind == "stacked" else range(len(drawn))
    for number in order:
        finite = [one for one in drawn[number].points if math.isfinite(one[1])]
        if not finite:
            continue
        line = " ".join(map(place, finite))
        colour = colours[number]
        if panel.kind == "stacked":
            corners = f"{place((finite[0][0], 0.0))} {line} {place((finite[-1][0], 0.0))}"
            parts.append(f'<polygon points="{corners}" fill="{colour}"/>')
        else:
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
            )
    if panel.edge is not None:
        ends = f"{place((first, panel.edge))} {place((last, panel.edge))}"
        parts.append(f'<polyline points="{ends}" stroke="#c4162a" stroke-dasharray="4 3"/>')
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%">{"".join(parts)}</svg>'
    return svg + _legend(panel.unit, curves, colours)


def _colours(curves: list[Curve]) -> list[str]:
    """Each curve's: its own one's lighter and lighter shades, or the palette in turn."""
    seen = Counter[str]()
    found = []
    for number, curve in enumerate(curves):
        lighter = _LIGHTER * (seen[curve.colour] % _NUM_SHADES)
        found.append(
            f"color-mix(in srgb, {curve.colour}, white {100 * lighter:.0f}%)"
            if curve.colour
            else _COLOURS[number % len(_COLOURS)]
        )
        seen[curve.colour] += 1
    return found


def _stacked(curves: list[Curve]) -> list[Curve]:
    """Each curve upon those before it."""
    below: dict[float, float] = {}
    found = []
    for curve in curves:
        for at, value in curve.points:
            below[at] = below.get(at, 0.0) + (value if math.isfinite(value) else 0.0)
        found.append(curve._replace(points=[(at, below[at]) for at, _ in curve.points]))
    return found


def _axes(unit: str, step: float, num_steps: int, first: float, last: float) -> str:
    parts = []
    for number in range(num_steps + 1):
        share = number / num_steps
        y = _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}" stroke="#eee"/>')
        parts.append(_text(_LEFT - 5, y + 4, written(step * number, unit), "end"))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        at = datetime.fromtimestamp(first + share * (last - first), UTC)
        x = _LEFT + share * (_WIDTH - _LEFT - 8)
        parts.append(_text(x, _HEIGHT - 5, at.strftime("%H:%M:%S"), anchor))
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="10" fill="#6b7280" text-anchor="{anchor}">{words}</text>'
    )


def _legend(unit: str, curves: list[Curve], colours: list[str]) -> str:
    entries = "".join(
        f'<span><i style="background:{colour}"></i>'
        f"{html.escape(curve.name)}: {written(curve.last, unit)}</span>"
        for colour, curve in zip(colours, curves, strict=True)
    )
    return f'<div class="legend">{entries}</div>'


def written(value: float, unit: str) -> str:
    """A value as Grafana writes it in a unit.

    Raises
    ------
    ValueError
        The unit is none that is used here.
    """
    if not math.isfinite(value):
        return "-"
    match unit:
        case "percentunit":
            return f"{100 * value:.3g} %"
        case "reqps":
            return f"{value:.3g} req/s"
        case "currencyUSD":
            return f"${value:.3g}"
        case "s":
            return _seconds(value)
        case "short":
            return _short(value)
        case "none":
            return f"{value:g}" if value == round(value) else f"{value:.3g}"
        case "cps":
            return f"{_short(value)}/s"
    raise ValueError(f"{unit} is no unit that panels have: teach it to curves.written")


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _short(value: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g}"


def _step(highest: float, *, whole: bool) -> float:
    """Between two marks of an axis: 1, 2, 2.5 or 5, or their tenfold, so that few reach up."""
    power: float = 10.0 ** math.floor(math.log10(highest / _NUM_STEPS))
    steps = (1.0, 2.0, 5.0, 10.0) if whole else (1.0, 2.0, 2.5, 5.0, 10.0)
    found = next(step * power for step in steps if step * power * _NUM_STEPS >= highest * 0.9999)
    return max(1.0, found) if whole else found
