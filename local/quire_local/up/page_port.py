"""Where the live page is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PagePort:
    """Its port on this machine."""

    port: int
    """0 takes a free one."""
    is_chosen: bool
    """Whether the user wants this one, and no other."""
    on_open: Callable[[str], None]
    """Called with the page's URL."""
