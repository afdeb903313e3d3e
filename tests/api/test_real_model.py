"""The default model on a CPU, through the same server: real text, real end tokens."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.events import check_ends_once, parse_events, text_of
from tests.api.servers import RunningServer, wait_until, wait_until_async

CHAT = "/v1/chat/completions"
MODEL = "SmolLM2-135M-Instruct.Q4_1"


@pytest.fixture(scope="module")
def real_server() -> Iterator[RunningServer]:
    with RunningServer("--max-model-len", "2048", "--max-num-blocks", "512") as running:
        yield running


def ask(content: str, **changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 32} | changes


def test_it_knows_the_capital_of_france_and_when_to_stop(real_server: RunningServer) -> None:
    question = "What is the capital of France?"
    whole = real_server.post(CHAT, ask(question)).json()
    events = parse_events(real_server.post(CHAT, ask(question, stream=True)).text)

    (choice,) = whole["choices"]
    assert "Paris" in choice["message"]["content"]
    assert "<|im_end|>" not in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] < 32
    assert check_ends_once(events) == "finish"
    assert text_of(events) == choice["message"]["content"]


def test_its_state_says_how_its_step_times_began(real_server: RunningServer) -> None:
    wait_until(lambda: real_server.state().calibration is not None)
    calibration = real_server.state().calibration

    assert calibration is not None
    # a machine too busy to measure anything learns its step times while serving
    assert calibration.status in ("measured", "stored", "failed")
    if calibration.status == "failed":
        assert calibration.detail
        return
    assert calibration.num_steps > 0
    assert calibration.prefill_tokens_per_second
    assert {1, 4} <= {rate.num_decodes for rate in calibration.decode_steps}
    step_time = real_server.state().step_time
    assert step_time is not None
    assert step_time.residuals is not None
    assert step_time.limits.num_decodes >= 4


def test_characters_of_several_tokens_come_whole(real_server: RunningServer) -> None:
    body = ask("Repeat exactly: 🌞 ✨ 🌊 🌈", max_tokens=24, stream=True)
    events = parse_events(real_server.post(CHAT, body).text)
    text = text_of(events)

    assert any(ord(character) > 0x1F000 for character in text)
    assert "�" not in text.removesuffix("�")  # only the end may cut a character


async def test_a_client_that_leaves_frees_the_blocks(real_server: RunningServer) -> None:
    async with httpx.AsyncClient(timeout=60) as leaving:
        body = ask("Tell me a long story.", max_tokens=1500, ignore_eos=True)
        request = asyncio.create_task(leaving.post(real_server.url + CHAT, json=body))
        await wait_until_async(lambda: real_server.state().sequences.running == 1)
        request.cancel()
    await wait_until_async(lambda: real_server.state().blocks.held == 0)


def test_answer_i_of_n_is_that_of_seed_plus_i(real_server: RunningServer) -> None:
    how: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 12}
    together = real_server.post(CHAT, ask("Name an animal.", n=3, **how)).json()
    texts = [choice["message"]["content"] for choice in together["choices"]]

    assert len(set(texts)) > 1
    for index, text in enumerate(texts):
        alone = ask("Name an animal.", **(how | {"seed": 11 + index}))
        assert real_server.post(CHAT, alone).json()["choices"][0]["message"]["content"] == text


def test_a_bad_word_does_not_come(real_server: RunningServer) -> None:
    body = ask("What is the capital of France?", bad_words=["Paris"])
    (choice,) = real_server.post(CHAT, body).json()["choices"]
    assert "Paris" not in choice["message"]["content"]


def test_scores_are_of_the_tokens_that_came(real_server: RunningServer) -> None:
    question = "What is the capital of France?"
    body = ask(question, logprobs=True, top_logprobs=2, max_tokens=5)
    (choice,) = real_server.post(CHAT, body).json()["choices"]
    content = choice["logprobs"]["content"]

    assert b"".join(bytes(t["bytes"]) for t in content).decode() == choice["message"]["content"]
    for token in content:
        first, second = token["top_logprobs"]
        assert (token["token"], token["logprob"]) == (first["token"], first["logprob"])
        assert 0 > first["logprob"] >= second["logprob"]


def test_an_echoed_prompt_is_scored_alike_cached_or_not(real_server: RunningServer) -> None:
    prompt = "The lighthouse keeper climbs the stairs every evening to light the lamp at the top."
    body = {"model": MODEL, "prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 0}
    first, again = (real_server.post("/v1/completions", body).json() for _ in range(2))
    scores = first["choices"][0]["logprobs"]

    assert first["choices"][0]["text"] == "".join(scores["tokens"]) == prompt
    assert first["usage"]["completion_tokens"] == 0
    assert scores["token_logprobs"][0] is None
    assert all(score < 0 for score in scores["token_logprobs"][1:])
    assert again["choices"] == first["choices"]


def test_a_model_that_never_saw_tools_makes_the_call_that_is_asked_for(
    real_server: RunningServer,
) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    body = ask(
        "What is the weather like in Paris?",
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=200,
    )

    (choice,) = real_server.post(CHAT, body).json()["choices"]
    events = parse_events(real_server.post(CHAT, body | {"stream": True}).text)

    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["unit"] in ("celsius", "fahrenheit")
    assert choice["finish_reason"] == "tool_calls"
    deltas = [event["choices"][0]["delta"] for event in events if isinstance(event, dict)]
    parts = [part["function"] for delta in deltas for part in delta.get("tool_calls", ())]
    assert "".join(part["arguments"] for part in parts) == call["function"]["arguments"]
