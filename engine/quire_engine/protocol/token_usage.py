"""What an answer took, as an engine says it to a gateway.

A whole answer has it in the header `x-quire-usage`; a stream in a comment before its end, whether
its client asked for usage or not. A gateway passes neither on. Only who names itself by
`x-quire-gateway` is told.
"""

import re
from dataclasses import dataclass

USAGE_HEADER = b"x-quire-usage"
_MARK = b": x-quire-usage "
_COMMENT = re.compile(rb"^: x-quire-usage ([^\n]{1,200})\n\n", re.MULTILINE)
_FIELD = re.compile(rb"(prompt|completion|cached)=(\d{1,15})(?:;|$)")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request."""

    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int = 0
    """Of the prompt's, those that were not computed."""

    @property
    def num_tokens(self) -> int:
        """All that are counted against a key's limit."""
        return self.num_prompt_tokens + self.num_output_tokens


def write_usage(usage: TokenUsage) -> bytes:
    """Return the header's value. Readers must accept keys that they do not know."""
    return (
        f"prompt={usage.num_prompt_tokens};completion={usage.num_output_tokens}"
        f";cached={usage.num_cached_tokens}"
    ).encode()


def write_usage_comment(usage: TokenUsage) -> bytes:
    """Return what a stream has: a comment, which no client takes for an event."""
    return _MARK + write_usage(usage) + b"\n\n"


def read_usage(text: bytes | None) -> TokenUsage | None:
    """Read the header's value; None if that is not what it is."""
    fields = dict(_FIELD.findall(text or b""))
    if b"prompt" not in fields or b"completion" not in fields:
        return None
    cached = int(fields.get(b"cached", b"0"))
    return TokenUsage(int(fields[b"prompt"]), int(fields[b"completion"]), cached)


def take_usage(events: bytes) -> tuple[bytes, TokenUsage | None]:
    """Take the comment out of whole events.

    No text of a model looks like it: in JSON there is no line's end.
    """
    found = _COMMENT.search(events) if _MARK in events else None
    if found is None:
        return events, None
    return events[: found.start()] + events[found.end() :], read_usage(found[1])
