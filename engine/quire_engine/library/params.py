"""How one request of the library is to be answered."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire_engine.errors import RequestError
from quire_engine.protocol.beams import EarlyStopping


@dataclass(frozen=True, kw_only=True)
class GenerationParams:
    """Choices of one request; wrong ones raise `RequestError`, which names the field.

    They are those of the HTTP API. For several answers submit a prompt several times: its blocks
    are shared.
    """

    max_tokens: int = 100
    """Most tokens to generate, at least 1."""
    temperature: float | None = None
    """Randomness, at least 0; 0 always takes the most likely token. None is what the model's files
    say, or else 1."""
    top_p: float | None = None
    """Choose among the most likely tokens that together reach this, in (0, 1]. None is what the
    model's files say, or else 0.9."""
    top_k: int | None = None
    """Choose among this many of the most likely tokens; 0 is all. None is what the model's files
    say, or else all."""
    min_p: float | None = None
    """Choose among tokens with at least this share of the most likely one's probability, in [0, 1].
    None is what the model's files say, or else 0."""
    seed: int | None = None
    """Equal seeds give equal answers, best effort."""
    presence_penalty: float = 0.0
    """Makes tokens that came in the answer less likely, in [-2, 2]; below 0, more."""
    frequency_penalty: float = 0.0
    """The same, once for each time that the token came."""
    repetition_penalty: float | None = None
    """Above 1, tokens of prompt and answer are less likely to come again; above 0. None is what the
    model's files say, or else 1."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """By token id: added to the token's logit, -100 to 100."""
    allowed_token_ids: tuple[int, ...] = ()
    """Only these tokens may come; empty allows all."""
    bad_words: tuple[str, ...] = ()
    """Texts whose tokens never come one after the other."""
    min_tokens: int = 0
    """Neither stop token nor stop text ends an answer before it has more tokens than this."""
    stop: tuple[str, ...] = ()
    """Texts that end the output, and are no part of it."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the output, as the model's own end tokens do, and are no part of its text."""
    include_stop_str_in_output: bool = False
    """Whether the stop text or token that ended an answer is a part of it."""
    ignore_eos: bool = False
    """Go on after the model's end token, up to max_tokens."""
    skip_special_tokens: bool = True
    """Leave control tokens out of the text."""
    logprobs: int | None = None
    """Score each token of the answer, and up to 20 likely ones beside; None scores none."""
    prompt_logprobs: int | None = None
    """The same for each token of the prompt but the first."""
    use_beam_search: bool = False
    """Search for the likeliest answer rather than sample; streams have it whole, at the end."""
    beam_width: int | None = None
    """Beams of a search, 1 to 128; None is 1."""
    length_penalty: float = 1.0
    """Of a search, -10 to 10: the higher, the longer the answers."""
    early_stopping: EarlyStopping = False
    """When a search is over: True, False or "never", as transformers has it."""
    timeout_seconds: float | None = None
    """A request that has not ended after this ends with an error; None takes the
    configuration's request_timeout_seconds."""

    def __post_init__(self) -> None:
        for name, (is_right, accepted) in _RULES.items():
            value = getattr(self, name)
            if value is not None and not is_right(value):
                raise RequestError(f"{name} is {value!r}, but accepts {accepted}", parameter=name)


def _is_within(low: float, high: float) -> Callable[[float], bool]:
    """Also says no to NaN."""
    return lambda value: low <= value <= high


def _are_ids(token_ids: tuple[int, ...]) -> bool:
    return min(token_ids, default=0) >= 0


def _are_biases(biases: Mapping[int, float]) -> bool:
    return _are_ids(tuple(biases)) and all(map(_is_within(-100, 100), biases.values()))


_PENALTY = (_is_within(-2, 2), "a number from -2 to 2")
_SCORES = (_is_within(0, 20), "a whole number from 0 to 20, or None")
_IDS = (_are_ids, "token ids of at least 0")
_TEXTS: tuple[Callable[[tuple[str, ...]], bool], str] = (all, "texts that are not empty")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_tokens": (lambda value: value >= 1, "a whole number of at least 1"),
    "temperature": (
        lambda value: math.isfinite(value) and value >= 0,
        "a number of at least 0, or None",
    ),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and up to 1, or None"),
    "top_k": (lambda value: value >= 0, "at least 0, or None"),
    "min_p": (_is_within(0, 1), "a number from 0 to 1, or None"),
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "repetition_penalty": (_is_within(0.01, 100), "a number from 0.01 to 100, or None"),
    "logit_bias": (_are_biases, "numbers from -100 to 100 by token id"),
    "allowed_token_ids": _IDS,
    "bad_words": _TEXTS,
    "min_tokens": (lambda value: value >= 0, "a whole number of at least 0"),
    "stop": _TEXTS,
    "stop_token_ids": _IDS,
    "logprobs": _SCORES,
    "prompt_logprobs": _SCORES,
    "beam_width": (_is_within(1, 128), "a whole number from 1 to 128, or None"),
    "length_penalty": (_is_within(-10, 10), "a number from -10 to 10"),
    "early_stopping": (lambda value: value in (True, False, "never"), 'True, False or "never"'),
    "timeout_seconds": (lambda value: value > 0, "above 0, or None"),
}
"""What each field accepts beside None."""
