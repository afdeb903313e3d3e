"""From a checked body to what the core needs: prompt tokens and sampling parameters."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from quire_engine.errors import RequestError
from quire_engine.models.generation_defaults import GenerationDefaults, first
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.errors import PromptTooLongError
from quire_engine.server.rendering import TemplateRenderer
from quire_engine.server.schemas.chat import ChatMessage
from quire_engine.server.schemas.completions import CompletionRequest
from quire_engine.server.schemas.parameters import GenerationParameters
from quire_engine.server.schemas.prompts import Prompts
from quire_engine.server.schemas.tools import Tool
from quire_engine.server.templates import TemplateChoices
from quire_engine.server.tools.prompt import write_for_template
from quire_engine.server.tools.setup import ToolSetup
from quire_engine.tokenizing.tokenizer import Tokenizer

T = TypeVar("T")

_SHORT_TEXT_CHARACTERS = 4096
"""Tokenizing a text up to this long takes less time than handing it to a thread and back."""


async def write_conversation(
    tokenizer: Tokenizer,
    renderer: TemplateRenderer | None,
    conversation: list[ChatMessage],
    choices: TemplateChoices,
    facts: ModelFacts,
    *,
    tools: Sequence[Tool] = (),
    tool_setup: ToolSetup,
) -> str:
    """Write a conversation as text by the model's template.

    Parameters
    ----------
    tools
        Those that the model is told of.

    Raises
    ------
    RequestError
        The model has no chat template, its template refuses the conversation, or that is far
        too long.
    """
    if renderer is None:
        raise RequestError(
            "this model has no chat template; use /v1/completions", parameter="messages"
        )
    num_characters = sum(message.num_characters for message in conversation)
    _check_characters(num_characters, tokenizer, facts, "messages")
    _check_characters(len(msgspec.json.encode(tools)) if tools else 0, tokenizer, facts, "tools")
    written = write_for_template(
        conversation, tools, tool_setup, brings_template=choices.template is not None
    )
    return await renderer.render(
        written.messages,
        tools=written.definitions,
        add_generation_prompt=choices.add_generation_prompt,
        continues_last=choices.continues_last,
        variables=choices.variables,
        template=choices.template or written.template,
    )


async def encode_conversation(
    tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = False
) -> list[int]:
    """Turn a conversation that was written into token ids."""
    encode = partial(tokenizer.encode, text, add_special_tokens=add_special_tokens)
    return await _off_the_loop(len(text), encode)


async def encode_text(
    tokenizer: Tokenizer, text: str, facts: ModelFacts, *, add_special_tokens: bool
) -> list[int]:
    """Turn one text into token ids.

    Raises
    ------
    RequestError
        It is far too long for the model.
    """
    _check_characters(len(text), tokenizer, facts, "prompt")
    work = partial(tokenizer.encode, text, add_special_tokens=add_special_tokens)
    return await _off_the_loop(len(text), work)


async def tokenize_prompts(
    tokenizer: Tokenizer, prompts: Prompts, facts: ModelFacts, parameter: str
) -> list[list[int]]:
    """Turn prompts into token ids, unless they come as such.

    Raises
    ------
    RequestError
        A text is too long; those after it are not even begun.
    """
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    for text in texts:
        _check_characters(len(text), tokenizer, facts, parameter)

    def encode_all() -> list[list[int]]:
        encoded = []
        for text in texts:
            encoded.append(tokenizer.encode(text))
            check_prompt(encoded[-1], facts, parameter)
        return encoded

    encoded = iter(await _off_the_loop(sum(map(len, texts)), encode_all))
    return [next(encoded) if isinstance(prompt, str) else prompt for prompt in prompts]


def echo_texts(
    tokenizer: Tokenizer, request: CompletionRequest, prompts: list[list[int]]
) -> list[str]:
    """Return the prompts as text: as they came, or what their token ids stand for."""
    skips = request.skip_special_tokens is not False
    return [
        given if isinstance(given, str) else tokenizer.decode(ids, skip_special_tokens=skips)
        for given, ids in zip(request.prompts(), prompts, strict=True)
    ]


def _check_characters(
    num_characters: int, tokenizer: Tokenizer, facts: ModelFacts, parameter: str
) -> None:
    """Refuse a text that is too long however it is cut into tokens.

    Tokenizing megabytes takes seconds of a core and of the GIL from everybody else's requests.
    """
    if num_characters > most_characters(tokenizer, facts):
        raise _too_long(f"{num_characters} characters", facts, parameter)


def most_characters(tokenizer: Tokenizer, facts: ModelFacts) -> int:
    """Return how long a text can be that the model takes, were every token its longest."""
    return facts.max_model_len * tokenizer.longest_token_characters


async def _off_the_loop(num_characters: int, work: Callable[[], T]) -> T:
    """Run tokenizing work, in a thread when it is long: the tokenizer releases the GIL."""
    if num_characters <= _SHORT_TEXT_CHARACTERS:
        return work()
    return await asyncio.to_thread(work)


def check_prompt(token_ids: list[int], facts: ModelFacts, parameter: str) -> None:
    """Refuse a prompt that the model cannot take.

    Raises
    ------
    RequestError
        It is empty or too long, or a token id is outside the vocabulary.
    """
    if not token_ids:
        raise RequestError(f"{parameter}: must not be empty", parameter=parameter)
    if len(token_ids) >= facts.max_model_len:
        raise _too_long(f"{len(token_ids)} tokens", facts, parameter)
    largest = max(token_ids)
    if largest >= facts.vocab_size:
        raise RequestError(
            f"{parameter}: token id {largest} is outside the vocabulary of {facts.vocab_size}",
            parameter=parameter,
        )


def _too_long(size: str, facts: ModelFacts, parameter: str) -> PromptTooLongError:
    return PromptTooLongError(
        f"{parameter}: {size} leave no room to generate: the model's maximum context length is"
        f" {facts.max_model_len} tokens of prompt and output together; send a shorter prompt",
        parameter=parameter,
    )


def choose_sampling(
    request: GenerationParameters,
    *,
    wanted_tokens: int | None,
    num_prompt_tokens: int,
    facts: ModelFacts,
    eos_token_ids: tuple[int, ...],
    defaults: GenerationDefaults,
) -> SamplingParams:
    """Fill in defaults, the model's before the engine's, and clamp the output to what is left.

    Raises
    ------
    RequestError
        More tokens are wanted than the model takes at all, or a stop token does not exist.
    """
    if wanted_tokens is not None and wanted_tokens > facts.max_model_len:
        raise RequestError(
            f"max_tokens: {wanted_tokens} is more than the {facts.max_model_len} tokens that the"
            " model takes of prompt and output together",
            parameter="max_tokens",
        )
    stop_token_ids = tuple(request.stop_token_ids or ())
    if max(stop_token_ids, default=0) >= facts.vocab_size:
        raise RequestError(
            f"stop_token_ids: ids are below the vocabulary's size {facts.vocab_size}",
            parameter="stop_token_ids",
        )
    room = facts.max_model_len - num_prompt_tokens
    top_k = first(request.top_k, defaults.top_k, 0)  # -1 and 0 are all
    return SamplingParams(
        max_tokens=room if wanted_tokens is None else min(wanted_tokens, room),
        temperature=first(request.temperature, defaults.temperature, 1.0),
        top_p=first(request.top_p, defaults.top_p, 1.0),
        top_k=top_k if top_k > 0 else None,
        min_p=first(request.min_p, defaults.min_p, 0.0),
        repetition_penalty=first(request.repetition_penalty, defaults.repetition_penalty, 1.0),
        seed=request.seed,
        stop_token_ids=stop_token_ids if request.ignore_eos else stop_token_ids + eos_token_ids,
    )
