"""What a request wants of its service: all that is decided by, and nothing of what it says.

It crosses from the process that has the connection to the one that decides, where these are two.
"""

import msgspec


class Wish(msgspec.Struct, array_like=True, gc=False):
    """One request; times are the event loop's, which all processes of a machine share."""

    arrived_at: float
    num_prompt_tokens: int
    """Estimated by the prompt's length alone."""
    max_tokens: int
    num_sequences: int
    is_background: bool
    deadline: float | None
    """By then the first token is due, as promised or as the request asks: the earlier one."""
    own_deadline: float | None
    """The one that the request itself asks for: it alone counts while no engine is there."""
    is_stream: bool
    is_retry: bool
    """Whether its client's library sends it again by itself."""
    chunks: tuple[int, ...]
    """Names of the prompt's parts."""
