"""What a request wants of its service: all that is decided by, and nothing of what it says.

It crosses from the process that has the connection to the one that decides, where these are two.
"""

import msgspec

from quire_gateway.choosing.text_chunks import name_chunks
from quire_gateway.routing.document import ApiKey, RoutingDocument
from quire_gateway.serving.inquiry import Inquiry


class Wish(msgspec.Struct, array_like=True, gc=False):
    """One request; times are the event loop's, which all processes of a machine share."""

    arrived_at: float
    num_prompt_tokens: int
    """Estimated by the prompt's length alone."""
    max_tokens: int
    num_sequences: int
    is_background: bool
    deadline: float | None
    """By then the first token is due."""
    has_own_deadline: bool
    """Whether the request asked for one itself."""
    is_stream: bool
    is_retry: bool
    """Whether its client's library sends it again by itself."""
    chunks: tuple[int, ...]
    """Names of the prompt's parts."""


def make_wish(
    inquiry: Inquiry, document: RoutingDocument, key: ApiKey, arrived_at: float, *, is_retry: bool
) -> Wish:
    """Return what a request wants, with what its service and its key make of it."""
    is_background = inquiry.is_background
    if is_background is None:
        is_background = document.default_priority == "background"
    is_background = is_background or key.max_priority == "background"
    seconds = inquiry.deadline_seconds
    promised = document.thresholds.slo_time_to_first_token_seconds
    if promised is not None and not is_background:
        seconds = promised if seconds is None else min(seconds, promised)
    return Wish(
        arrived_at,
        inquiry.num_prompt_tokens,
        inquiry.max_tokens,
        inquiry.num_sequences,
        is_background,
        None if seconds is None else arrived_at + seconds,
        inquiry.deadline_seconds is not None,
        inquiry.is_stream,
        is_retry,
        name_chunks(inquiry.prompt_parts, key.salt),
    )
