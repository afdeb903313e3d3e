"""Structured output and tools of `/v1/responses`, as OpenAI's client sees them.

What is said and called is to the letter what chat completions say and call. The script of the tool
tests stands for a model that decides; where it has to call, a simulated one does.
"""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.api.servers import MODEL as SIMULATED_MODEL
from tests.api.servers import RunningServer
from tests.api.test_responses import events_of, without_ids
from tests.api.test_tools import MODEL, PLAIN, QUESTION, SCRIPT, GetWeather

TOOL: Any = {"type": "function", **PLAIN["function"]}
FORCED: Any = openai.pydantic_function_tool(GetWeather, name="get_weather")
ASKED = QUESTION[0]["content"]


@pytest.fixture(scope="module")
def scripted() -> Iterator[RunningServer]:
    with RunningServer("--command", shlex.join(["/bin/sh", "-c", SCRIPT])) as running:
        yield running


@pytest.fixture
def speaker(scripted: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as client:
        yield client


class Light(BaseModel):
    is_on: bool
    color: str


def test_openais_client_parses_an_object(client: openai.OpenAI) -> None:
    answer = client.responses.parse(
        model=SIMULATED_MODEL, input="hi", text_format=Light, max_output_tokens=400
    )
    assert answer.status == "completed", answer.output_text
    assert answer.output_parsed == Light.model_validate_json(answer.output_text)
    form = answer.to_dict()["text"]["format"]  # type: ignore[index]
    assert (form["type"], form["strict"]) == ("json_schema", True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("form", "of_chat"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": Light.model_json_schema()},
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": Light.model_json_schema()},
            },
        ),
    ],
)
def test_a_form_gives_what_chats_give(
    server: RunningServer, form: Any, of_chat: Any, seed: int
) -> None:
    shared = {"model": SIMULATED_MODEL, "seed": seed}
    body = {**shared, "input": "hi", "text": {"format": form}, "max_output_tokens": 30}
    chat = server.post(
        "/v1/chat/completions",
        {
            **shared,
            "messages": [{"role": "user", "content": "hi"}],
            "response_format": of_chat,
            "max_tokens": 30,
        },
    ).json()["choices"][0]
    whole = server.post("/v1/responses", body).json()
    last = events_of(server, **body)[-1]["response"]

    assert whole["output"][0]["content"][0]["text"] == chat["message"]["content"]
    assert (whole["status"] == "completed") == (chat["finish_reason"] == "stop")
    assert without_ids(last) == without_ids(whole)


def test_calls_are_items_and_what_chats_call(scripted: RunningServer, speaker: Any) -> None:
    answer = speaker.responses.create(model=MODEL, input=ASKED, tools=[TOOL])
    chat = speaker.chat.completions.create(model=MODEL, messages=QUESTION, tools=[PLAIN])
    said = chat.choices[0].message
    message, *calls = answer.output

    assert (answer.status, answer.output_text) == ("completed", said.content)
    assert message.type == "message"
    assert [(call.type, call.status) for call in calls] == [("function_call", "completed")] * 2
    assert [(call.name, call.arguments) for call in calls] == [
        (call.function.name, call.function.arguments) for call in said.tool_calls
    ]
    assert len({call.call_id for call in calls} | {call.id for call in calls}) == 4
    assert answer.usage.output_tokens == chat.usage.completion_tokens
    scripted.wait_until_idle()


def test_streamed_calls_are_the_whole_ones(scripted: RunningServer, speaker: Any) -> None:
    whole = scripted.post("/v1/responses", {"model": MODEL, "input": ASKED, "tools": [TOOL]}).json()
    events = events_of(scripted, model=MODEL, input=ASKED, tools=[TOOL])
    last = events[-1]["response"]
    own = [{**item, "call_id": None} for item in without_ids(last)["output"]]

    assert own == [{**item, "call_id": None} for item in without_ids(whole)["output"]]
    for index, item in enumerate(last["output"][1:], 1):
        added, *deltas, done, item_done = [
            event for event in events if event.get("output_index") == index
        ]
        assert added["item"] == {**item, "arguments": "", "status": "in_progress"}
        assert "".join(event["delta"] for event in deltas) == item["arguments"]
        assert (done["name"], done["arguments"]) == (item["name"], item["arguments"])
        assert item_done["item"] == item
    with speaker.responses.stream(model=MODEL, input=ASKED, tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert [item.type for item in final.output] == ["message", "function_call", "function_call"]


def test_results_go_back_with_what_came(scripted: RunningServer, speaker: Any) -> None:
    first = speaker.responses.create(model=MODEL, input=ASKED, tools=[TOOL])
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        for item in first.output
        if item.type == "function_call"
    ]
    conversation = [{"role": "user", "content": ASKED}, *first.output, *results]
    second = speaker.responses.create(model=MODEL, input=conversation, tools=[TOOL])

    assert second.output_text == "It is sunny in Paris."
    said = speaker.chat.completions.create(model=MODEL, messages=QUESTION, tools=[PLAIN])
    message = said.choices[0].message
    same = speaker.chat.completions.create(
        model=MODEL,
        tools=[PLAIN],
        messages=[
            *QUESTION,
            message.model_dump(exclude_none=True),
            *(
                {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                for call in message.tool_calls
            ),
        ],
    )
    assert second.usage.input_tokens == same.usage.prompt_tokens
    scripted.wait_until_idle()


@pytest.mark.parametrize(
    ("choice", "of_chat"),
    [
        ("required", "required"),
        (
            {"type": "function", "name": "get_weather"},
            {"type": "function", "function": {"name": "get_weather"}},
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_weather"}],
            },
            "required",
        ),
    ],
)
def test_a_call_that_is_asked_for_is_the_chats(
    server: RunningServer, choice: Any, of_chat: Any
) -> None:
    shared = {"model": SIMULATED_MODEL, "seed": 5, "parallel_tool_calls": False}
    tool = {"type": "function", **FORCED["function"]}
    body = {**shared, "input": ASKED, "tools": [tool], "tool_choice": choice}
    answer = server.post("/v1/responses", {**body, "max_output_tokens": 600}).json()
    chat = server.post(
        "/v1/chat/completions",
        {**shared, "messages": QUESTION, "tools": [FORCED], "tool_choice": of_chat,
         "max_tokens": 600},
    ).json()["choices"][0]  # fmt: skip
    (call,) = answer["output"]

    assert answer["status"] == "completed", answer
    GetWeather.model_validate_json(call["arguments"])
    assert call["arguments"] == chat["message"]["tool_calls"][0]["function"]["arguments"]
    assert (answer["tool_choice"], answer["tools"][0]["name"]) == (choice, "get_weather")


def test_a_call_that_is_cut_short_is_incomplete(server: RunningServer) -> None:
    tool = {"type": "function", **FORCED["function"]}
    body = {"model": SIMULATED_MODEL, "input": ASKED, "tools": [tool], "tool_choice": "required"}
    *_, item_done, last = events_of(server, **body, max_output_tokens=60)

    assert item_done["item"]["type"] == "function_call"
    assert item_done["item"]["status"] == last["response"]["status"] == "incomplete"
    with pytest.raises(json.JSONDecodeError):
        json.loads(item_done["item"]["arguments"])


def test_openais_client_parses_arguments(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(
        model=SIMULATED_MODEL,
        input=ASKED,
        tools=[openai.pydantic_function_tool(GetWeather, name="get_weather")],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=600,
    )
    (call,) = parsed.output
    assert call.type == "function_call"
    assert isinstance(call.parsed_arguments, GetWeather)
