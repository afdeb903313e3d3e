"""A picture of the KV blocks and of whom they belong to, small enough to be sent often.

    blocks   1 2 3 4 5 6 7 8 ...        stride 1: every block is a cell
    cells    a a b b - - - c            runs: [a, 2, b, 2, -, 3, c, 1]

With more than `MAX_CELLS` blocks only every `stride`-th is shown: blocks are handed out without
regard to their number, so that the sample has each owner's share.
"""

import msgspec

MAX_CELLS = 8192
"""Cells of a map, at most."""
MAX_RUNNING_SHOWN = 256
MAX_WAITING_SHOWN = 64

FREE = 0
CACHED = 1
"""Free, and its content can still be found."""
PROMISED_FREE = 2
"""Free, and among the next to be taken: the predicted occupancy counts on it."""
PROMISED_CACHED = 3
"""The same of a cached block: its content will be given up."""
SHARED = 4
"""Held by several requests."""
OTHER = 5
"""Held by a request that is not listed."""
FIRST_REQUEST = 6
"""Held by the first of the listed requests, FIRST_REQUEST + 1 by the second, and so on."""


class BlockMap(msgspec.Struct, kw_only=True, frozen=True):
    """Who holds which block, as of one moment."""

    stride: int
    """Every so many-th block is shown, beginning with the first."""
    num_cells: int
    runs: list[int]
    """Code, length, code, length, ... over all cells."""
    num_shared: int
    """Blocks that several requests hold, of all blocks."""


class RequestView(msgspec.Struct, kw_only=True, frozen=True):
    """A request without its text."""

    id: str
    """As its client sees it, where it is told one."""
    number: int
    """Rises with every request since the core started."""
    priority: str
    phase: str
    """waiting, preempted, prefill or decode."""
    num_prompt_tokens: int
    num_tokens: int
    """Prompt and output so far."""
    num_computed_tokens: int
    """Tokens whose KV is computed."""
    max_tokens: int
    """Most tokens, prompt included."""
    num_blocks: int
    num_cached_tokens: int
    """Prompt tokens that the prefix cache gave."""
    queue_seconds: float
    """How long it waited for its start, or has waited until now."""
    age_seconds: float
    """Since it arrived."""
