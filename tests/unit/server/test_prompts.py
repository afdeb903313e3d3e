"""Limits and defaults of a request, and the simple tokenizer."""

from typing import Any
from unittest.mock import Mock, call

import pytest

from quire_engine.errors import RequestError
from quire_engine.models.generation_defaults import GenerationDefaults
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.prompts import (
    check_prompt,
    choose_sampling,
    tokenize_prompts,
    write_conversation,
)
from quire_engine.server.rendering import TemplateRenderer
from quire_engine.server.schemas.chat import ChatMessage, ContentPart
from quire_engine.server.schemas.completions import CompletionRequest
from quire_engine.server.templates import TemplateChoices
from quire_engine.server.tools.setup import ToolSetup
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.simple import build_simple_tokenizer

NOTHING_SAID = GenerationDefaults()
FACTS = ModelFacts(max_model_len=100, vocab_size=256, num_blocks=10, block_size=16)


def sample(
    wanted_tokens: int | None,
    num_prompt_tokens: int,
    defaults: GenerationDefaults = NOTHING_SAID,
    **parameters: Any,
) -> SamplingParams:
    return choose_sampling(
        CompletionRequest(model="m", prompt="p", **parameters),
        wanted_tokens=wanted_tokens,
        num_prompt_tokens=num_prompt_tokens,
        facts=FACTS,
        eos_token_ids=(2,),
        defaults=defaults,
    )


@pytest.mark.parametrize(
    ("wanted", "num_prompt", "expected"),
    [(10, 40, 10), (None, 40, 60), (80, 40, 60), (100, 99, 1), (1, 99, 1)],
)
def test_output_fits_what_the_prompt_leaves(
    wanted: int | None, num_prompt: int, expected: int
) -> None:
    assert sample(wanted, num_prompt).max_tokens == expected


def test_more_than_the_model_takes_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="101 is more than the 100"):
        sample(101, 1)


@pytest.mark.parametrize("length", [100, 101])
def test_a_prompt_must_leave_room_for_one_token(length: int) -> None:
    check_prompt([1] * 99, FACTS, "prompt")
    with pytest.raises(RequestError, match=f"{length} tokens leave no room"):
        check_prompt([1] * length, FACTS, "prompt")


def test_ids_outside_the_vocabulary_are_refused() -> None:
    check_prompt([255], FACTS, "prompt")
    with pytest.raises(RequestError, match="256 is outside"):
        check_prompt([256], FACTS, "prompt")
    with pytest.raises(RequestError, match="below the vocabulary"):
        sample(1, 1, stop_token_ids=[256])


def test_defaults_are_openais_and_zero_means_greedy() -> None:
    assert sample(1, 1) == SamplingParams(max_tokens=1, stop_token_ids=(2,))
    assert sample(1, 1, temperature=0.0).is_greedy
    assert sample(1, 1, top_k=-1).top_k is sample(1, 1, top_k=0).top_k is None
    assert sample(1, 1, top_k=5, top_p=0.5, seed=-3) == SamplingParams(
        max_tokens=1, top_k=5, top_p=0.5, seed=-3, stop_token_ids=(2,)
    )


def test_end_tokens_are_left_out_when_they_are_to_be_ignored() -> None:
    assert sample(1, 1, ignore_eos=True, stop_token_ids=[7]).stop_token_ids == (7,)
    assert sample(1, 1, stop_token_ids=[7]).stop_token_ids == (7, 2)


@pytest.mark.parametrize("text", ["plain", "ünïcode", "😀", "\x00\x7f", "a" * 10_000])
async def test_the_simple_tokenizer_is_utf8(text: str) -> None:
    tokenizer = build_simple_tokenizer()
    roomy = ModelFacts(max_model_len=20_000, vocab_size=256, num_blocks=2000, block_size=16)
    request = CompletionRequest(model="m", prompt=text)
    (token_ids,) = await tokenize_prompts(tokenizer, request.prompts(), roomy, "prompt")
    detokenizer = tokenizer.detokenizer()

    assert bytes(token_ids) == text.encode()
    assert detokenizer.push_all(token_ids) + detokenizer.finish() == text


async def test_a_text_that_cannot_fit_is_refused_before_it_costs_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = build_simple_tokenizer()
    monkeypatch.setattr(tokenizer, "encode", lambda *_, **__: pytest.fail("it was tokenized"))
    renderer = TemplateRenderer(ChatTemplate("{{ messages }}"), 1000)
    monkeypatch.setattr(renderer, "render", lambda *_, **__: pytest.fail("it was rendered"))
    text = "a" * (FACTS.max_model_len * len("<0xFF>") + 1)
    parts = [ContentPart(type="text", text=text[:150]) for _ in range(2)]
    conversation = [ChatMessage(role="user", content=content) for content in (parts, text[:301])]

    with pytest.raises(RequestError, match="601 characters leave no room"):
        await tokenize_prompts(tokenizer, [text], FACTS, "prompt")
    with pytest.raises(RequestError, match="601 characters leave no room"):
        await write_conversation(
            tokenizer, renderer, conversation, TemplateChoices(), FACTS, tool_setup=ToolSetup()
        )


async def test_no_text_after_one_that_is_too_long_is_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = build_simple_tokenizer()
    encode = Mock(side_effect=tokenizer.encode)
    monkeypatch.setattr(tokenizer, "encode", encode)
    request = CompletionRequest(model="m", prompt=["fits", "a" * 100, "b"])

    with pytest.raises(RequestError, match="100 tokens leave no room"):
        await tokenize_prompts(tokenizer, request.prompts(), FACTS, "prompt")

    assert encode.call_args_list == [call("fits"), call("a" * 100)]


MAKERS = GenerationDefaults(
    temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.1
)


def test_what_a_request_does_not_say_the_models_makers_say() -> None:
    chosen = sample(1, 1, MAKERS)
    assert (chosen.temperature, chosen.top_p, chosen.top_k) == (0.6, 0.95, 20)
    assert (chosen.min_p, chosen.repetition_penalty) == (0.05, 1.1)


def test_what_a_request_says_wins() -> None:
    chosen = sample(
        1, 1, MAKERS, temperature=0.0, top_p=1.0, top_k=3, min_p=0.0, repetition_penalty=1.0
    )
    assert (chosen.temperature, chosen.top_p, chosen.top_k) == (0.0, 1.0, 3)
    assert (chosen.min_p, chosen.repetition_penalty) == (0.0, 1.0)


@pytest.mark.parametrize("everything", [0, -1])
def test_a_request_may_ask_for_all_tokens(everything: int) -> None:
    assert sample(1, 1, MAKERS, top_k=everything).top_k is None


def test_where_nobody_says_anything_sampling_is_plain() -> None:
    assert sample(1, 1) == SamplingParams(max_tokens=1, temperature=1.0, stop_token_ids=(2,))
