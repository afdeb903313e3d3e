"""What a body says of the choice of tokens beyond temperature and its like.

It is checked against the model and put into the core's terms.
"""

import re

import msgspec

from quire_engine.errors import RequestError
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.schemas.parameters import GenerationParameters
from quire_engine.tokenizing.tokenizer import Tokenizer

_TOKEN_ID = re.compile("[0-9]{1,10}")
MAX_WORD_TOKENS = 256


def add_rules(
    sampling: SamplingParams,
    request: GenerationParameters,
    *,
    tokenizer: Tokenizer,
    facts: ModelFacts,
    num_prompt_logprobs: int | None,
) -> SamplingParams:
    """Return the choices with all else that the body wants of them.

    Parameters
    ----------
    num_prompt_logprobs
        As the core takes it; echoed prompts are scored too.

    Raises
    ------
    RequestError
        A token does not exist, a minimum is above its maximum, a text cannot be spelled, or the
        engine cannot do it.
    """
    changed = msgspec.structs.replace(
        sampling,
        min_tokens=request.min_tokens or 0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=_read_biases(request.logit_bias or {}, facts),
        allowed_token_ids=_check_allowed(request.allowed_token_ids or [], facts),
        bad_words=_spell_words(request.bad_words or [], tokenizer),
        num_logprobs=request.num_logprobs(),
        num_prompt_logprobs=num_prompt_logprobs,
    )
    _refuse_impossible(changed, facts)
    if changed.min_tokens > changed.max_tokens:
        raise RequestError(
            f"min_tokens: {changed.min_tokens} is more than the {changed.max_tokens} tokens that"
            " may be generated",
            parameter="min_tokens",
        )
    return changed


def _refuse_impossible(sampling: SamplingParams, facts: ModelFacts) -> None:
    """Refuse what the executor cannot do: a parameter is never dropped silently."""
    neutral = SamplingParams(max_tokens=1)
    for name in facts.refused_parameters:
        if getattr(sampling, name) != getattr(neutral, name):
            parameter = name.removeprefix("num_")
            raise RequestError(
                f"{parameter}: this engine cannot do it; leave it out", parameter=parameter
            )


def _read_biases(biases: dict[str, float], facts: ModelFacts) -> tuple[tuple[int, float], ...]:
    read: dict[int, float] = {}
    for name, bias in biases.items():
        token_id = int(name) if _TOKEN_ID.fullmatch(name) else facts.vocab_size
        if token_id >= facts.vocab_size:
            raise RequestError(
                f"logit_bias: {name[:40]!r} is no token id; ids are from 0 to"
                f" {facts.vocab_size - 1}",
                parameter="logit_bias",
            )
        read[token_id] = bias
    return tuple((token_id, bias) for token_id, bias in read.items() if bias)


def _check_allowed(token_ids: list[int], facts: ModelFacts) -> tuple[int, ...]:
    largest = max(token_ids, default=0)
    if largest >= facts.vocab_size:
        raise RequestError(
            f"allowed_token_ids: token id {largest} is outside the vocabulary of"
            f" {facts.vocab_size}",
            parameter="allowed_token_ids",
        )
    return tuple(dict.fromkeys(token_ids))


def _spell_words(words: list[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the words as token ids: as they begin a text, and as they come after a space.

    The second only where it differs in its first token alone: vLLM's rule.
    """
    spelled: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = _spell(word.lstrip(), tokenizer)
        spaced = _spell(" " + word.lstrip(), tokenizer)
        spelled[bare] = None
        if spaced[0] != bare[0] and len(spaced) == len(bare):
            spelled[spaced] = None
    return tuple(spelled)


def _spell(word: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    token_ids = tuple(tokenizer.encode(word, add_special_tokens=False))
    if not 0 < len(token_ids) <= MAX_WORD_TOKENS:
        raise RequestError(
            f"bad_words: each is 1 to {MAX_WORD_TOKENS} tokens long, and {word[:40]!r} has"
            f" {len(token_ids)}",
            parameter="bad_words",
        )
    return token_ids
