"""What chat and text completions share: from a checked body to a response."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import Request

from quire_engine.protocol.grammar import Grammar
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.answering import Answering, PromptTask
from quire_engine.server.answers import AnswerFormat
from quire_engine.server.best_of import best_of
from quire_engine.server.cost_hint import refuse_hopeless
from quire_engine.server.errors import ApiError
from quire_engine.server.prompts import check_prompt, choose_sampling
from quire_engine.server.sampling_rules import add_rules
from quire_engine.server.schemas.parameters import GenerationParameters
from quire_engine.server.search_rules import choose_beams
from quire_engine.server.service import Service
from quire_engine.server.streaming import GenerationResponse
from quire_engine.server.terms import RequestTerms, read_terms
from quire_engine.server.text_maker import ReasoningChoices, TextChoices


@asynccontextmanager
async def take_request(service: Service, http: Request) -> AsyncIterator[RequestTerms]:
    """Let a request in for as long as it is read and made ready; its terms are returned.

    Raises
    ------
    ApiError
        The server takes none, the headers say what makes no sense, or a drain's time is over.
    """
    service.check_open()
    terms = read_terms(http.headers)
    with service.arrivals.until_sent(terms.gateway, terms.gateway_counter):
        async with service.activity.prepare():
            yield terms


def check_request(service: Service, request: GenerationParameters, terms: RequestTerms) -> None:
    """Refuse what can be refused without the prompt's tokens.

    Raises
    ------
    ApiError, RequestError
        The model is not served here, a parameter is wrong, or the cost hint is hopeless.
    """
    service.check_model(request.model)
    request.check()
    check_cost_hint(service, terms, request.priority)


def check_cost_hint(service: Service, terms: RequestTerms, body_priority: int | None) -> None:
    """Refuse what is hopeless by its cost hint, if it has one.

    Raises
    ------
    ApiError
        It never fits, or is to start now and cannot.
    """
    stats, profile = service.client.latest_stats, service.client.latest_profile
    if terms.cost_hint is None or stats is None or profile is None:
        return
    try:
        refuse_hopeless(
            terms.cost_hint,
            priority=terms.priority_with(body_priority),
            starts_now=terms.starts_now,
            block_size=service.facts.block_size,
            stats=stats,
            thresholds=profile.thresholds,
        )
    except ApiError:
        service.metrics.refuse("cost_hint")
        raise


def respond(
    service: Service,
    request: GenerationParameters,
    answer: AnswerFormat,
    terms: RequestTerms,
    prompts: Sequence[list[int]],
    *,
    prompt_parameter: str,
    wanted_tokens: int | None,
    echoes: Sequence[str] | None = None,
    grammar: Grammar | None = None,
    reasoning: ReasoningChoices | None = None,
    control_tokens: Mapping[int, str] | None = None,
) -> GenerationResponse:
    """Make the response that generates the answers.

    Parameters
    ----------
    prompts
        Token ids of each prompt.
    echoes
        Text of each prompt, where answers are to begin with it.
    grammar
        What the answers have to look like.
    reasoning
        How the model's reasoning is told from its answers, where it is.
    control_tokens
        Those that the answer's format needs to see in the text.

    Raises
    ------
    RequestError
        A prompt or the number of tokens is more than the model takes, or a parameter is wrong.
    """
    tasks = []
    for number, token_ids in enumerate(prompts):
        check_prompt(token_ids, service.facts, prompt_parameter)
        sampling = _sampling(service, request, len(token_ids), wanted_tokens, echoes is not None)
        sampling, beams = choose_beams(
            request,
            sampling,
            num_prompt_tokens=len(token_ids),
            wanted_tokens=wanted_tokens,
            facts=service.facts,
            max_num_seqs=service.config.scheduler.max_num_seqs,
        )
        name = f"{service.client.client_id}-{answer.id}"
        core_request = AddRequest(
            client_id=service.client.client_id,
            request_id=f"{name}-{number}" if number else name,
            prompt_token_ids=token_ids,
            sampling=sampling,
            priority=terms.priority_with(request.priority),
            starts_now=terms.starts_now,
            holds_room=terms.holds_room,
            deadline_seconds=terms.deadline_seconds,
            cache_salt=terms.cache_salt,
            num_sequences=request.num_sequences(),
            beams=beams,
            grammar=grammar,
        )
        choices = TextChoices(
            stops=tuple(request.stop_texts()),
            includes_stop=bool(request.include_stop_str_in_output),
            skips_special_tokens=request.skip_special_tokens is not False,
            echo=echoes[number] if echoes is not None else None,
            reasoning=reasoning,
            control_tokens=control_tokens or {},
            is_echo_only=wanted_tokens == 0,
        )
        is_wanted = request.prompt_logprobs is not None
        tasks.append(PromptTask(core_request, choices, shows_prompt_scores=is_wanted))
    note_gateway(tasks, terms)
    return GenerationResponse(
        Answering(service, tasks),
        answer,
        is_stream=bool(request.stream),
        activity=service.activity,
        best_of=best_of(request),
    )


def _sampling(
    service: Service,
    request: GenerationParameters,
    num_prompt_tokens: int,
    wanted_tokens: int | None,
    is_echoed: bool,
) -> SamplingParams:
    """The core's choices for one prompt: of 0 tokens, one is generated and dropped."""
    sampling = choose_sampling(
        request,
        wanted_tokens=1 if wanted_tokens == 0 else wanted_tokens,
        num_prompt_tokens=num_prompt_tokens,
        facts=service.facts,
        eos_token_ids=service.tokenizer.eos_token_ids,
        defaults=service.generation_defaults,
    )
    num_prompt_logprobs = request.prompt_logprobs
    if is_echoed and num_prompt_logprobs is None:
        num_prompt_logprobs = request.num_logprobs()
    return add_rules(
        sampling,
        request,
        tokenizer=service.tokenizer,
        facts=service.facts,
        num_prompt_logprobs=num_prompt_logprobs,
    )


def note_gateway(tasks: Sequence[PromptTask], terms: RequestTerms) -> None:
    """Tell the core of the gateway's counter with the last prompt: then it has all of them.

    Names of a prompt's parts belong to one prompt alone.
    """
    last = tasks[-1].request
    last.gateway, last.gateway_counter = terms.gateway, terms.gateway_counter
    if len(tasks) == 1:
        last.prefix_chunks = list(terms.prefix_chunks)
