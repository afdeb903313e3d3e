"""What serving costs: dollars for a million output tokens, as others sell them.

Output tokens are those of answers. Prompts' cost nothing of their own here: what they take of a
replica is in the price of the tokens that follow them, so that traffic with longer prompts has
dearer ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quire_local.simulate.sizing import SizedWindow, served_share

COLUMN = "$ / M tokens"
MEANING = "M tokens: a million output tokens"


@dataclass(frozen=True, kw_only=True)
class Total:
    """What all windows of one choice cost together, and what is had for it."""

    dollars: float
    dollars_per_hour: float
    """On the mean."""
    output_tokens: float
    """Of the requests that are served as promised."""
    dollars_per_million_output_tokens: float | None
    """None where none is served."""
    served_share: float
    """Part of all requests."""


def sum_up(windows: Sequence[SizedWindow]) -> Total:
    """Add windows up; there are some."""
    dollars = sum(one.dollars for one in windows)
    tokens = sum(one.output_tokens_per_second * one.seconds for one in windows)
    return Total(
        dollars=dollars,
        dollars_per_hour=dollars / (sum(one.seconds for one in windows) / 3600),
        output_tokens=tokens,
        dollars_per_million_output_tokens=per_million(dollars, tokens),
        served_share=served_share(windows),
    )


def per_million(dollars: float, tokens: float) -> float | None:
    """Dollars for a million of these tokens; None if there are none."""
    return dollars / tokens * 1e6 if tokens > 0 else None


def in_words(price: float | None) -> str:
    """A price as tables have it."""
    return "-" if price is None else f"{price:.3f}"
