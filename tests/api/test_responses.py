"""`/v1/responses` as OpenAI's client and the bare events show it: a chat completion in other words.

The command of the reasoning tests stands in for the model: it says what the last message says.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.api.gateways import BOTH_WAYS
from tests.api.servers import MODEL, RunningServer
from tests.api.test_reasoning import REPEAT, SAID, SPOKEN, THOUGHT


@pytest.fixture(scope="module")
def repeating() -> Iterator[RunningServer]:
    flags = ("--reasoning-parser", "qwen3")
    with RunningServer("--command", REPEAT, *flags) as running:
        yield running


@pytest.fixture
def repeater(repeating: RunningServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{repeating.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def events_of(server: RunningServer, **body: Any) -> list[dict[str, Any]]:
    response = server.post("/v1/responses", {"stream": True, **body})
    assert response.status_code == 200, response.text
    *frames, last = response.text.split("\n\n")
    assert last == ""
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What two equal requests have in common."""
    own = ("id", "created_at", "completed_at")
    items = [{**item, "id": None} for item in response["output"]]
    return {**response, **dict.fromkeys(own), "output": items}


@BOTH_WAYS
def test_a_text_is_answered(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model=MODEL, input="hi", instructions="Be brief.", max_output_tokens=12,
        metadata={"a": "b"}, extra_body={"seed": 3},
    )  # fmt: skip
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=12, seed=3,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    )  # fmt: skip

    assert answer.output_text == chat.choices[0].message.content
    assert len(answer.output_text) == 12
    assert (answer.status, answer.incomplete_details) != ("completed", None)
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage is not None
    assert answer.usage.output_tokens == 12
    assert chat.usage is not None
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    assert answer.usage.total_tokens == chat.usage.total_tokens
    assert (answer.metadata, answer.instructions, answer.id[:5]) == (
        {"a": "b"},
        "Be brief.",
        "resp_",
    )
    assert answer.to_dict()["store"] is False


def test_a_reasoning_is_an_item_of_its_own(repeater: openai.OpenAI) -> None:
    answer = repeater.responses.create(model="command", input=SPOKEN)
    reasoning, message = answer.output

    assert reasoning.type == "reasoning"
    assert reasoning.content is not None
    assert reasoning.content[0].text == THOUGHT
    assert message.type == "message"
    assert answer.output_text == SAID
    assert {answer.status, reasoning.status, message.status} == {"completed"}
    assert answer.usage is not None
    assert answer.usage.output_tokens == len(SPOKEN.encode())
    reasoning_tokens = answer.usage.output_tokens_details.reasoning_tokens
    assert reasoning_tokens == len(SPOKEN.partition("</think>")[0].encode()) + len("</think>")


def test_openais_client_follows_a_stream(repeater: openai.OpenAI) -> None:
    with repeater.responses.stream(model="command", input=SPOKEN) as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert final.output_text == SAID
    thought = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    said = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert ("".join(thought), "".join(said)) == (THOUGHT, SAID)


ITEM_EVENTS = ["output_item.added", "content_part.added", "delta", "done", "content_part.done",
               "output_item.done"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kinds", "texts"),
    [
        (SPOKEN, ["reasoning", "message"], [THOUGHT, SAID]),
        (SAID, ["message"], [SAID]),
        ("<think>only thought", ["reasoning"], ["only thought"]),
        ("<think></think>", ["message"], [""]),
    ],
)
def test_the_events_come_in_order_and_the_last_is_the_whole_response(
    repeating: RunningServer, text: str, kinds: list[str], texts: list[str]
) -> None:
    body = {"model": "command", "input": text}
    created, begun, *events, last = events_of(repeating, **body)
    whole = repeating.post("/v1/responses", body).json()

    names = [created["type"], begun["type"], last["type"]]
    assert names == ["response.created", "response.in_progress", "response.completed"]
    numbers = [event["sequence_number"] for event in (created, begun, *events, last)]
    assert numbers == list(range(len(numbers)))
    assert without_ids(last["response"]) == without_ids(whole)
    assert last["response"]["id"] == created["response"]["id"]
    assert created["response"]["usage"] is None
    for index, (kind, expected) in enumerate(zip(kinds, texts, strict=True)):
        own = [event for event in events if event["output_index"] == index]
        assert [event["item"]["type"] for event in (own[0], own[-1])] == [kind, kind]
        part = {"reasoning": "reasoning_text", "message": "output_text"}[kind]
        steps = [event["type"].removeprefix("response.").removeprefix(f"{part}.") for event in own]
        assert list(dict.fromkeys(steps)) == [
            step for step in ITEM_EVENTS if expected or step != "delta"
        ]
        assert "".join(event.get("delta", "") for event in own) == expected
        assert own[-3]["text"] == own[-2]["part"]["text"] == expected
        assert own[-1]["item"] == last["response"]["output"][index]
    assert events == sorted(events, key=lambda event: event["output_index"])


def test_a_stream_that_is_cut_is_incomplete(server: RunningServer) -> None:
    *_, item_done, last = events_of(server, model=MODEL, input="hi", max_output_tokens=3)

    assert last["type"] == "response.incomplete"
    assert item_done["item"]["status"] == last["response"]["status"] == "incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_conversation_goes_in_as_it_came_out(repeating: RunningServer, repeater: Any) -> None:
    first = repeater.responses.create(model="command", input=SPOKEN)
    conversation = [
        {"role": "user", "content": SPOKEN},
        *(item.to_dict() for item in first.output),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]},
    ]
    second = repeater.responses.create(model="command", input=conversation)

    assert second.output_text == "more"
    repeating.wait_until_idle()


FUNCTION = {"type": "function", "name": "f"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name"),
        ({"tools": [{**FUNCTION, "parameters": {"type": 1}}]}, "tools[0].parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": [FUNCTION]}, "tool_choice"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
        ({"input": [CALL, CALL]}, "input[1].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].call_id"),
        ({"input": [CALL, {"type": "function_call_output", "call_id": "c"}]}, "input[1].output"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "hi"}]}, "input[0].role"),
        ({"input": [{"role": "tool", "content": "hi"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**9}, "max_output_tokens"),
        ({"input": "a" * 3_000_000}, "input"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
        ({"reasoning": {"effort": "much"}}, "reasoning.effort"),
        ({"stop": [""]}, "stop[0]"),
    ],
)
def test_what_is_not_supported_or_wrong_is_named(
    server: RunningServer, parameters: dict[str, Any], name: str
) -> None:
    response = server.post("/v1/responses", {"model": MODEL, "input": "hi", **parameters})

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", name)


def test_what_changes_nothing_is_taken(server: RunningServer) -> None:
    body = {
        "model": MODEL, "input": "hi", "max_output_tokens": 2, "store": True, "background": False,
        "tools": [], "tool_choice": "auto", "include": [], "truncation": "disabled", "user": "me",
        "previous_response_id": None, "parallel_tool_calls": True, "top_logprobs": 0,
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": "auto"},
        "service_tier": "auto", "safety_identifier": "x", "unknown": 1,
    }  # fmt: skip
    response = server.post("/v1/responses", body)

    assert response.status_code == 200, response.text
    assert response.json()["store"] is False


def test_another_model_is_not_found(server: RunningServer) -> None:
    response = server.post("/v1/responses", {"model": "other", "input": "hi"})
    assert response.status_code == 404


def test_a_stream_that_fails_in_the_middle_says_so(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    command = f"sh -c 'printf begun; while [ ! -e {seen} ]; do sleep 0.05; done; exit 3'"
    body = {"model": "command", "input": "hi", "stream": True}
    lines = []
    with (
        RunningServer("--command", command) as failing,
        httpx.stream("POST", f"{failing.url}/v1/responses", json=body, timeout=60) as response,
    ):
        for line in response.iter_lines():
            lines.append(line)
            if "output_text.delta" in line:
                seen.touch()
    last = json.loads(lines[-2].removeprefix("data: "))

    assert any('"delta":"begun"' in line for line in lines)
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
