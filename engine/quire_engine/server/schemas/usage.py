"""Token counts of a response."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

EndReason = Literal["stop", "length"]
"""Why an answer ended, as clients see it."""
ChatEndReason = EndReason | Literal["tool_calls"]
"""The same of chats: "tool_calls" where an answer that came to its own end calls tools."""


class PromptTokensDetails(msgspec.Struct, kw_only=True):
    """More about the prompt's tokens."""

    cached_tokens: int
    """Tokens whose KV was found in the prefix cache."""


class CompletionTokensDetails(msgspec.Struct, kw_only=True):
    """More about the answer's tokens."""

    reasoning_tokens: int
    """Tokens of the reasoning, its tags included."""


class Usage(msgspec.Struct, kw_only=True):
    """Token counts, as they were computed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    """Only where the model's reasoning is told from its answers."""


def make_usage(
    num_prompt_tokens: int,
    num_generated_tokens: int,
    num_cached: int,
    num_reasoning: int | None = None,
) -> Usage:
    """Token counts of one request."""
    details = (
        UNSET if num_reasoning is None else CompletionTokensDetails(reasoning_tokens=num_reasoning)
    )
    return Usage(
        prompt_tokens=num_prompt_tokens,
        completion_tokens=num_generated_tokens,
        total_tokens=num_prompt_tokens + num_generated_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=num_cached),
        completion_tokens_details=details,
    )
