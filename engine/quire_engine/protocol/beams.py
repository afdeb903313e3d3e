"""How a request wants its answers searched for, rather than sampled."""

from typing import Literal

import msgspec

EarlyStopping = bool | Literal["never"]
"""When a search is over; see `BeamParams.early_stopping`."""


class BeamParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Checked choices of one beam search; scores and ends are those of transformers."""

    width: int
    """Continuations that are kept at each step, at least 1 and as many as answers are wanted."""
    length_penalty: float = 1.0
    """A continuation's score is the sum of its tokens' log probabilities divided by their number
    raised to this: above 0 prefers long answers, below 0 short ones."""
    early_stopping: EarlyStopping = False
    """True ends as soon as `width` continuations have ended; False when none that goes on is, at
    its length now, better than the worst of those; "never" when none can become so."""
    stop_texts: tuple[str, ...] = ()
    """A continuation ends with any of these in its text."""


def most_blocks(*, num_prompt_tokens: int, max_length: int, width: int, block_size: int) -> int:
    """Return the blocks of beams that share nothing but the prompt's full blocks.

    Parameters
    ----------
    max_length
        Most tokens of a beam, prompt included.
    """
    num_shared = num_prompt_tokens // block_size
    return num_shared + width * (-(-max_length // block_size) - num_shared)
