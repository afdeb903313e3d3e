"""From the library's choices to the core's, by the same checks and defaults as the server's."""

from quire_engine.errors import RequestError
from quire_engine.library.params import GenerationParams
from quire_engine.models.generation_defaults import GenerationDefaults, first
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.prompts import check_prompt, choose_sampling
from quire_engine.server.sampling_rules import add_rules
from quire_engine.server.schemas.completions import CompletionRequest
from quire_engine.server.search_rules import check_search, choose_beams
from quire_engine.server.text_maker import TextChoices
from quire_engine.tokenizing.tokenizer import Tokenizer

_TOP_P = 0.9
"""Where neither request nor model say; the server's is 1."""


def choose(
    params: GenerationParams,
    token_ids: list[int],
    *,
    tokenizer: Tokenizer,
    facts: ModelFacts,
    defaults: GenerationDefaults,
    max_num_seqs: int,
) -> tuple[SamplingParams, BeamParams | None]:
    """Choose what the core is to do for a prompt of these tokens, by a search or without.

    Raises
    ------
    RequestError
        The prompt or a choice is more than the model takes, or a token does not exist.
    """
    if min(token_ids, default=0) < 0:
        raise RequestError("prompt: token ids are at least 0", parameter="prompt")
    check_prompt(token_ids, facts, "prompt")
    is_sampled = not params.use_beam_search
    top_p = first(params.top_p, defaults.top_p, _TOP_P) if is_sampled else params.top_p
    request = _as_request(params, top_p)
    check_search(request)
    sampling = choose_sampling(
        request,
        wanted_tokens=params.max_tokens,
        num_prompt_tokens=len(token_ids),
        facts=facts,
        eos_token_ids=tokenizer.eos_token_ids,
        defaults=defaults,
    )
    sampling = add_rules(
        sampling,
        request,
        tokenizer=tokenizer,
        facts=facts,
        num_prompt_logprobs=params.prompt_logprobs,
    )
    return choose_beams(
        request,
        sampling,
        num_prompt_tokens=len(token_ids),
        wanted_tokens=params.max_tokens,
        facts=facts,
        max_num_seqs=max_num_seqs,
    )


def choose_text(params: GenerationParams) -> TextChoices:
    """Choose how the text is to be made of the tokens."""
    return TextChoices(
        stops=params.stop,
        includes_stop=params.include_stop_str_in_output,
        skips_special_tokens=params.skip_special_tokens,
    )


def _as_request(params: GenerationParams, top_p: float | None) -> CompletionRequest:
    """The same choices as a client of the server would send them."""
    return CompletionRequest(
        model="",
        prompt="",
        temperature=params.temperature,
        top_p=top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=params.seed,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias={str(token_id): bias for token_id, bias in params.logit_bias.items()},
        allowed_token_ids=list(params.allowed_token_ids),
        bad_words=list(params.bad_words),
        min_tokens=params.min_tokens,
        stop_token_ids=list(params.stop_token_ids),
        ignore_eos=params.ignore_eos,
        logprobs=params.logprobs,
        stop=list(params.stop),
        use_beam_search=params.use_beam_search,
        beam_width=params.beam_width,
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
    )
