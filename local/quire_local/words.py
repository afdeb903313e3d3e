"""Numbers as people read them."""

from math import floor

_WHOLE_FROM = 100.0
"""From here on a fraction says nothing."""


def counted(number: int, noun: str) -> str:
    """A number of things: 1 request, 2 requests."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rounded(number: float) -> str:
    """Three digits of a small number, and all whole ones of a large one, never as 1e+03."""
    return f"{number:.0f}" if number >= _WHOLE_FROM else f"{number:.3g}"


def share(part: float, *, digits: int = 2) -> str:
    """Percent, rounded down: what is not all never reads as 100%."""
    scale = 10**digits
    return f"{floor(round(part * 100 * scale, 6)) / scale:.{digits}f}%"


def plain(number: float) -> str:
    """A number as somebody would type it."""
    return f"{number:.10g}"
