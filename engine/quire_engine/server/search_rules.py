"""What a body may say of beam search and of `best_of`, and what the core is asked for then.

use_beam_search    beam_width (or best_of, or n) beams; the n best answers, chosen by the core
best_of above n    so many answers are sampled; `BestOf` keeps the n likeliest
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from quire_engine.errors import RequestError
from quire_engine.protocol.beams import BeamParams, most_blocks
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams

if TYPE_CHECKING:
    from quire_engine.server.schemas.parameters import GenerationParameters

_OF_BEAMS: dict[str, tuple[Any, ...]] = {
    "beam_width": (),
    "early_stopping": (False,),
    "length_penalty": (1.0,),
}
"""Parameters that mean something with beams only, and what changes nothing without."""
_OF_SAMPLING: dict[str, tuple[Any, ...]] = {
    "temperature": (0.0, 1.0),
    "top_p": (1.0,),
    "top_k": (0, -1),
    "min_p": (0.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "logit_bias": ({},),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
}
"""Parameters that beams cannot heed, and what changes nothing."""


def check_search(request: "GenerationParameters") -> None:
    """Refuse what contradicts itself.

    Raises
    ------
    RequestError
        The message names the parameter.
    """
    if request.best_of is not None and request.best_of < request.num_answers():
        raise _refuse("best_of", f"{request.best_of} is less than n, which is {request.n}")
    if not request.use_beam_search:
        for name in _changed(request, _OF_BEAMS):
            raise _refuse(name, 'only together with "use_beam_search": true')
        if request.num_sequences() > request.num_answers() and request.stream:
            raise _refuse("best_of", 'above n not together with "stream": true; leave one out')
        return
    for name in _changed(request, _OF_SAMPLING):
        raise _refuse(
            name, "not together with use_beam_search, which samples nothing; leave it out"
        )
    if request.grammar_spec() is not None:
        name = "structured_outputs" if request.response_format is None else "response_format"
        raise _refuse(name, "not together with use_beam_search; leave one of them out")
    if request.beam_width is not None and request.best_of not in (None, request.beam_width):
        raise _refuse("best_of", "another number of beams than beam_width; leave one of them out")
    if request.num_beams() < request.num_answers():
        raise _refuse("n", f"{request.n} answers are more than the {request.num_beams()} beams")


def choose_beams(
    request: "GenerationParameters",
    sampling: SamplingParams,
    *,
    num_prompt_tokens: int,
    wanted_tokens: int | None,
    facts: ModelFacts,
    max_num_seqs: int,
) -> tuple[SamplingParams, BeamParams | None]:
    """Return the choices for the core, and its search if one is wanted.

    An answer whose length is left open is no longer than all beams have blocks for.

    Raises
    ------
    RequestError
        More beams are wanted than can run, or more tokens than they have room for.
    """
    if not request.use_beam_search:
        is_ranked = request.num_sequences() > request.num_answers()
        if is_ranked and sampling.num_logprobs is None:
            sampling = msgspec.structs.replace(sampling, num_logprobs=0)
        if is_ranked and "num_logprobs" in facts.refused_parameters:
            raise _refuse("best_of", "this engine cannot compare answers; leave it out")
        return sampling, None
    width = request.num_beams()
    if "num_logprobs" in facts.refused_parameters:
        raise _refuse("use_beam_search", "this engine cannot do it; leave it out")
    if wanted_tokens == 0:
        raise _refuse("max_tokens", "at least 1 with use_beam_search")
    # so there are enough to go on with, or to end with, even while no stop token may come
    num_tokens = facts.vocab_size - len(set(sampling.stop_token_ids))
    if width > min(max_num_seqs, num_tokens):
        most = min(max_num_seqs, num_tokens)
        why = "that can run" if most == max_num_seqs else "tokens that do not end an answer"
        raise _refuse("beam_width", f"{width} beams are more than the {most} {why}")
    longest = _longest(num_prompt_tokens, width, facts)
    if longest <= num_prompt_tokens or (
        wanted_tokens is not None and longest < num_prompt_tokens + sampling.max_tokens
    ):
        needed = most_blocks(
            num_prompt_tokens=num_prompt_tokens,
            max_length=num_prompt_tokens + sampling.max_tokens,
            width=width,
            block_size=facts.block_size,
        )
        raise _refuse(
            "max_tokens",
            f"{width} beams of {sampling.max_tokens} tokens can need {needed} KV blocks, and there"
            f" are {facts.num_blocks}; ask for fewer of either",
        )
    beams = BeamParams(
        width=width,
        length_penalty=1.0 if request.length_penalty is None else request.length_penalty,
        early_stopping=request.early_stopping or False,
        stop_texts=tuple(request.stop_texts()),
    )
    max_tokens = min(sampling.max_tokens, longest - num_prompt_tokens)
    return msgspec.structs.replace(sampling, max_tokens=max_tokens), beams


def _longest(num_prompt_tokens: int, width: int, facts: ModelFacts) -> int:
    """Return the most tokens of prompt and answer that so many beams have blocks for."""
    num_shared = num_prompt_tokens // facts.block_size
    return (num_shared + (facts.num_blocks - num_shared) // width) * facts.block_size


def _changed(request: "GenerationParameters", neutral: dict[str, tuple[Any, ...]]) -> Iterator[str]:
    for name, values in neutral.items():
        value = getattr(request, name)
        if value is not None and value not in values:
            yield name


def _refuse(name: str, reason: str) -> RequestError:
    return RequestError(f"{name}: {reason}", parameter=name)
