"""How one request wants its tokens chosen, and what it is told of the choice."""

from typing import Literal

import msgspec

Pooling = Literal["mean", "last"]
"""What of a prompt's final hidden states is its embedding: the mean of all, or the last one."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Checked choices of one request; the API server fills in the model's own defaults.

    They take effect in this order: allowed tokens, bad words, min_tokens, logit_bias, penalties,
    then greedy choice or temperature, min_p, top_k, top_p. Stop *strings* are not here: they are
    found by the API server, which holds the text.
    """

    max_tokens: int
    """Most tokens to generate, at least 1; prompt and output together fit the model's length."""
    temperature: float = 1.0
    """Divides the logits, at least 0; below 1e-5 the most likely token is taken (greedy)."""
    top_p: float = 1.0
    """Keep the smallest set of tokens whose probability reaches this, in (0, 1]."""
    top_k: int | None = None
    """Keep this many of the most likely tokens, at least 1; None keeps all."""
    min_p: float = 0.0
    """Keep tokens with at least this share of the most likely one's probability, in [0, 1]."""
    seed: int | None = None
    """Random numbers are keyed by (seed, position); None draws a fresh seed for the request."""
    stop_token_ids: tuple[int, ...] = ()
    """Generation ends after any of these; the model's end tokens are among them."""
    min_tokens: int = 0
    """None of the first so many generated tokens is a stop token."""
    presence_penalty: float = 0.0
    """Taken from the logit of each token that was generated before."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit once for each time it was generated before."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens of prompt and output; above 0."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit); each id once."""
    allowed_token_ids: tuple[int, ...] = ()
    """Only these may be generated; empty allows all."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens of which none is ever completed in the output."""
    num_logprobs: int | None = None
    """Score each generated token, and so many of the most likely ones beside; None scores none."""
    num_prompt_logprobs: int | None = None
    """The same for each token of the prompt but the first."""
    pooling: Pooling | None = None
    """Which states of the prompt make its embedding: such a request has no output, and max_tokens
    is 1, for what ends it."""

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < 1e-5

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that came before are made more or less likely."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )

    @property
    def has_logit_rules(self) -> bool:
        """Whether logits are changed before the choice."""
        return bool(
            self.has_penalties
            or self.logit_bias
            or self.allowed_token_ids
            or self.bad_words
            or self.min_tokens
        )

    @property
    def needs_host(self) -> bool:
        """Whether there is more to a step than a token chosen on the device: rules or scores."""
        return bool(
            self.has_logit_rules
            or self.num_logprobs is not None
            or self.num_prompt_logprobs is not None
            or self.pooling is not None
        )


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """A token's score, by the model's own logits before anything changes them."""

    logprob: float
    """Natural logarithm of its probability; -inf or NaN where the logits are not finite."""
    rank: int
    """1 for the most likely token; equals share a rank."""
    top_ids: tuple[int, ...] = ()
    """The most likely tokens, best first, as many as were asked for."""
    top_logprobs: tuple[float, ...] = ()
    """Their scores."""
