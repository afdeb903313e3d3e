"""A sheet to draw on, as SVG: boxes, words in two languages, arrows. No program is needed.

Sheets have a ground of their own, so that they can be read on light and dark pages alike.
"""

from html import escape
from typing import NamedTuple

INK, QUIET, GROUND = "#1f2933", "#64748b", "#f8fafc"
TEAL, AMBER, ROSE, BLUE, GREY = "#0f9488", "#d97706", "#be3455", "#2563a8", "#cbd5e1"
_FONT = "system-ui, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', sans-serif"
_LINE = 17
_HEAD = 7


class Words(NamedTuple):
    """The same in both languages."""

    en: str
    zh: str


class Canvas:
    """One picture in one language.

    Parameters
    ----------
    width, height
        In the SVG's units, which are pixels at its own size.
    language
        0 for English, 1 for Chinese.
    title
        What it shows, for who cannot see it.
    """

    def __init__(self, width: int, height: int, language: int, title: Words) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
            f'width="{width}" height="{height}" role="img" font-family="{_FONT}" font-size="13">',
            f"<title>{escape(title[language])}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}"/>',
        ]
        self._language = language

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: Words | None = None,
        *,
        fill: str = "#ffffff",
        edge: str = QUIET,
        ink: str = INK,
        dashed: bool = False,
    ) -> None:
        """Draw a box with words in its middle; a newline in them begins another line."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
            f'fill="{fill}" stroke="{edge}" stroke-width="1.4"{dash}/>'
        )
        if words is not None:
            lines = words[self._language].split("\n")
            top = y + height / 2 - (len(lines) - 1) * _LINE / 2 + 4.5
            for number, line in enumerate(lines):
                self._text(x + width / 2, top + number * _LINE, line, "middle", ink, number == 0)

    def label(
        self,
        x: float,
        y: float,
        words: Words,
        *,
        anchor: str = "middle",
        ink: str = QUIET,
        bold: bool = False,
    ) -> None:
        """Write words; the place is that of their first line's foot."""
        for number, line in enumerate(words[self._language].split("\n")):
            self._text(x, y + number * _LINE, line, anchor, ink, bold)

    def cell(self, x: float, y: float, size: float, fill: str, *, hatched: bool = False) -> None:
        """Draw a KV block."""
        shown = GROUND if hatched else fill
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{size:g}" height="{size:g}" rx="2" fill="{shown}" '
            f'stroke="{fill}" stroke-width="1.6"'
            + (' stroke-dasharray="3 2"/>' if hatched else "/>")
        )

    def arrow(
        self,
        *points: tuple[float, float],
        ink: str = QUIET,
        dashed: bool = False,
        head: bool = True,
    ) -> None:
        """Draw a line through the points, with a head at its end."""
        path = " ".join(
            f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points)
        )
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="1.6"{dash}/>'
        )
        if head:
            (x0, y0), (x, y) = points[-2:]
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5 or 1.0
            dx, dy = (x - x0) / length * _HEAD, (y - y0) / length * _HEAD
            left, right = (x - dx - dy / 2, y - dy + dx / 2), (x - dx + dy / 2, y - dy - dx / 2)
            corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in ((x, y), left, right))
            self._parts.append(f'<polygon points="{corners}" fill="{ink}"/>')

    def area(self, points: list[tuple[float, float]], fill: str, *, opacity: float = 0.25) -> None:
        """Fill a shape."""
        corners = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(
            f'<polygon points="{corners}" fill="{fill}" fill-opacity="{opacity:g}"/>'
        )

    def text(self) -> str:
        """The file."""
        return "\n".join([*self._parts, "</svg>", ""])

    def _text(self, x: float, y: float, line: str, anchor: str, ink: str, bold: bool) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{ink}"{weight}>'
            f"{escape(line)}</text>"
        )
