"""How things are said."""

from collections.abc import Sequence

Said = tuple[bool | None, str, str]
"""Whether it is so (None: not known), the reason, the message."""

_MOST_SENTENCES = 5


def num_replicas(number: int) -> str:
    """So many of them."""
    return "1 replica" if number == 1 else f"{number} replicas"


def several(sentences: Sequence[str]) -> str:
    """The first few: all of them may be hundreds."""
    more = len(sentences) - _MOST_SENTENCES
    rest = f"; and {more} more" if more > 0 else ""
    return "; ".join(sentences[:_MOST_SENTENCES]) + rest
