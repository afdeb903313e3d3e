"""Scores of tokens as the two APIs show them."""

import msgspec


class TopLogprob(msgspec.Struct, kw_only=True):
    """A token that might have come, and its score."""

    token: str
    logprob: float
    bytes: list[int]
    """The token's bytes, which need not be whole characters."""


class TokenLogprob(TopLogprob, kw_only=True):
    """A token that came, its score, and the most likely ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, kw_only=True):
    """Scores of a chat completion's tokens."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, kw_only=True):
    """Scores of a text completion's tokens: four lists of one length."""

    text_offset: list[int]
    """Characters of the text before each token."""
    token_logprobs: list[float | None]
    """null for the first token of an echoed prompt."""
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]
    """The most likely tokens and the one that came, by their text."""


class PromptLogprob(msgspec.Struct, kw_only=True):
    """A token's score in a prompt, as vLLM shows it."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of a prompt the scores by token id; null for the first."""

StopReason = int | str | None
"""The stop string or stop token that ended an answer; null for anything else."""
