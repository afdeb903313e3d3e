"""Tools as OpenAI's client sees them.

Where the model decides, a command stands for it: what it says is known. Where it has to call, a
simulated one does, which says what the grammar permits.
"""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.api.gateways import BOTH_WAYS
from tests.api.servers import MODEL as SIMULATED_MODEL
from tests.api.servers import RunningServer

SCRIPT = r"""
case "$HETERO_PROMPT" in
  *"<tool_response>"*) printf 'It is sunny in Paris.' ;;
  *"Say nothing"*) printf 'As you like.' ;;
  *"Break it"*) printf '<tool_call>\n{"name": "get_weather", "arg' ;;
  *get_weather*) printf 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": '
     printf '{"city": "Paris"}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "argu'
     printf 'ments": {"city": "Lyon"}}\n</tool_call>' ;;
  *) printf 'There are no tools.' ;;
esac
"""
MODEL = "command"
QUESTION: Any = [{"role": "user", "content": "What is the weather like in Paris and Lyon?"}]


class GetWeather(BaseModel):
    """How the weather is."""

    city: str


WEATHER: Any = openai.pydantic_function_tool(GetWeather, name="get_weather")
PLAIN: Any = {
    "type": "function",
    "function": {**WEATHER["function"], "strict": False},
}


@pytest.fixture(scope="module")
def scripted() -> Iterator[openai.OpenAI]:
    command = shlex.join(["/bin/sh", "-c", SCRIPT])
    with (
        RunningServer("--command", command) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def ask(client: openai.OpenAI, **parameters: Any) -> Any:
    given = {"model": MODEL, "messages": QUESTION, "tools": [PLAIN], "max_tokens": 400}
    return client.chat.completions.create(**given | parameters)


def cities(message: Any) -> list[str]:
    return [json.loads(call.function.arguments)["city"] for call in message.tool_calls]


def test_calls_come_whole(scripted: openai.OpenAI) -> None:
    (choice,) = ask(scripted).choices

    assert choice.message.content == "Let me see."
    assert cities(choice.message) == ["Paris", "Lyon"]
    assert choice.finish_reason == "tool_calls"


def test_calls_come_in_deltas_that_join_to_the_same(scripted: openai.OpenAI) -> None:
    whole = ask(scripted).choices[0].message
    given: Any = {"model": MODEL, "messages": QUESTION, "tools": [PLAIN], "max_tokens": 400}
    with scripted.chat.completions.stream(**given) as stream:
        kinds = {event.type for event in stream}
        (choice,) = stream.get_final_completion().choices

    assert "tool_calls.function.arguments.delta" in kinds
    assert choice.message.content == whole.content
    assert [call.function.arguments for call in choice.message.tool_calls or ()] == [
        call.function.arguments for call in whole.tool_calls
    ]
    assert choice.finish_reason == "tool_calls"


def test_results_go_back_and_the_answer_is_text(scripted: openai.OpenAI) -> None:
    message = ask(scripted).choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
    ]
    conversation = [*QUESTION, message.model_dump(exclude_none=True), *results]

    (choice,) = ask(scripted, messages=conversation).choices

    assert choice.message.content == "It is sunny in Paris."
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"


def test_one_call_where_calls_are_not_to_be_parallel(scripted: openai.OpenAI) -> None:
    assert cities(ask(scripted, parallel_tool_calls=False).choices[0].message) == ["Paris"]


def test_tools_that_may_not_be_called_are_not_in_the_prompt(scripted: openai.OpenAI) -> None:
    (choice,) = ask(scripted, tool_choice="none").choices

    assert choice.message.content == "There are no tools."


def test_every_one_of_n_answers_has_calls(scripted: openai.OpenAI) -> None:
    answer = ask(scripted, n=2)
    ids = {call.id for choice in answer.choices for call in choice.message.tool_calls}

    assert [cities(choice.message) for choice in answer.choices] == [["Paris", "Lyon"]] * 2
    assert len(ids) == 4


def test_a_broken_call_is_content(scripted: openai.OpenAI) -> None:
    (choice,) = ask(scripted, messages=[{"role": "user", "content": "Break it"}]).choices

    assert choice.message.content == '<tool_call>\n{"name": "get_weather", "arg'
    assert choice.finish_reason == "stop"


def test_usage_counts_all_that_was_generated(scripted: openai.OpenAI) -> None:
    answer = ask(scripted)

    assert answer.usage.completion_tokens > 100
    assert answer.usage.prompt_tokens > 100


@pytest.mark.parametrize(
    "parameters",
    [
        {"tools": [PLAIN, PLAIN]},
        {"tool_choice": {"type": "function", "function": {"name": "nobody"}}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 3}}}]},
        {"tools": [PLAIN] * 1000},
        {"messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]},
        {"extra_body": {"functions": [{"name": "f"}]}},
    ],
)
def test_what_makes_no_sense_is_a_400_that_names_the_place(
    scripted: openai.OpenAI, parameters: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(scripted, **parameters)
    assert refused.value.param is not None


def test_the_tokens_of_a_prompt_with_tools_can_be_counted(scripted: openai.OpenAI) -> None:
    answer = ask(scripted)
    counted = scripted.with_options(base_url=str(scripted.base_url).replace("/v1", "")).post(
        "/tokenize",
        body={"messages": QUESTION, "tools": [PLAIN]},
        cast_to=dict[str, Any],
    )

    assert counted["count"] == answer.usage.prompt_tokens


TRIP: Any = {
    "type": "function",
    "function": {
        "name": "plan_trip",
        "parameters": {
            "type": "object",
            "properties": {
                "days": {"type": "integer", "minimum": 1, "maximum": 99},
                "cities": {"type": "array", "items": {"enum": ["Paris", "Lyon"]}, "minItems": 1},
            },
            "required": ["days", "cities"],
            "additionalProperties": False,
        },
    },
}
NOW: Any = {"type": "function", "function": {"name": "what_time_is_it"}}
NAMED: Any = {"type": "function", "function": {"name": "plan_trip"}}
ALLOWED: Any = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [NAMED]},
}


def force(client: openai.OpenAI, **parameters: Any) -> Any:
    given: dict[str, Any] = {
        "model": SIMULATED_MODEL,
        "messages": QUESTION,
        "tools": [NOW, TRIP],
        "tool_choice": NAMED,
        "max_tokens": 300,
        "seed": 3,
    }
    return client.chat.completions.create(**given | parameters)


def check_trip(call: Any) -> None:
    assert call.function.name == "plan_trip"
    jsonschema.validate(json.loads(call.function.arguments), TRIP["function"]["parameters"])


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"tool_choice": ALLOWED, "parallel_tool_calls": False},
        {"tool_choice": "required", "tools": [TRIP], "parallel_tool_calls": False},
        {"response_format": {"type": "json_object"}},
    ],
    ids=["named", "allowed", "required", "beside a format"],
)
def test_a_call_that_is_asked_for_is_made_and_valid(
    client: openai.OpenAI, parameters: dict[str, Any]
) -> None:
    (choice,) = force(client, **parameters).choices

    check_trip(choice.message.tool_calls[0])
    assert len(choice.message.tool_calls) == 1
    assert choice.message.content is None
    assert choice.finish_reason == "tool_calls"


def test_a_function_without_parameters_is_called_without_arguments(client: openai.OpenAI) -> None:
    choice = force(client, tools=[NOW], tool_choice="required").choices[0]

    assert {call.function.arguments for call in choice.message.tool_calls} == {"{}"}


@BOTH_WAYS
def test_calls_that_are_asked_for_join_from_deltas(client: openai.OpenAI) -> None:
    whole = force(client).choices[0].message.tool_calls[0].function.arguments
    deltas = [chunk.choices[0].delta for chunk in force(client, stream=True)]
    parts = [call.function.arguments for delta in deltas for call in delta.tool_calls or ()]

    assert "".join(parts) == whole
    assert not any(delta.content for delta in deltas)


@BOTH_WAYS
def test_each_of_n_answers_calls(client: openai.OpenAI) -> None:
    for choice in force(client, n=3).choices:
        check_trip(choice.message.tool_calls[0])


@BOTH_WAYS
def test_a_call_that_is_cut_short_says_so(client: openai.OpenAI) -> None:
    begin = '<tool_call>\n{"name": "plan_trip", "arguments": '
    (choice,) = force(client, max_tokens=len(begin) + 3).choices  # a token is a letter

    assert choice.finish_reason == "length"
    assert [call.function.arguments for call in choice.message.tool_calls] == ['{"d']
    (choice,) = force(client, max_tokens=5).choices
    assert (choice.finish_reason, choice.message.content) == ("length", "<tool")


def test_a_stop_text_in_a_call_is_no_end_of_its_own(client: openai.OpenAI) -> None:
    (choice,) = force(client, stop='"days":').choices

    assert choice.finish_reason == "stop"
    assert [call.function.arguments for call in choice.message.tool_calls] == ["{"]


def test_an_answer_is_a_call_or_of_the_form_that_is_asked_for(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["fine"]}}}
    message = force(client, tool_choice="auto", response_format=form).choices[0].message

    if message.tool_calls:
        assert message.content is None
    else:
        assert message.content == '"fine"'


@pytest.mark.parametrize("form", [{"regex": "a+"}, {"grammar": 'root ::= "a"'}])
def test_other_forms_leave_no_room_for_calls(client: openai.OpenAI, form: dict[str, str]) -> None:
    body = {"structured_outputs": form}
    with pytest.raises(openai.BadRequestError, match="structured_outputs: not together with tools"):
        force(client, tool_choice="auto", extra_body=body)
    assert force(client, tool_choice="none", extra_body=body).choices[0].message.content


def test_scores_of_a_call_are_those_of_all_its_tokens(client: openai.OpenAI) -> None:
    answer = force(client, logprobs=True)

    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens


@pytest.mark.parametrize(
    "parameters",
    [
        {"extra_body": {"bad_words": ["x"]}},
        {"extra_body": {"allowed_token_ids": [5]}},
        {"tools": [{"type": "function", "function": {"name": "plan_trip", "parameters": {
            "type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}}}]},
        {"tools": [{"type": "function", "function": {"name": "plan_trip", "parameters": {
            "type": "object", "required": ["a"], "properties": {"a": False}}}}]},
    ],
    ids=["bad words", "allowed tokens", "a reference elsewhere", "nothing is valid"],
)  # fmt: skip
def test_what_no_call_could_fulfil_is_refused(
    client: openai.OpenAI, parameters: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        force(client, **parameters)
    assert refused.value.param is not None


def test_a_command_cannot_be_made_to_call(scripted: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="command"):
        ask(scripted, tool_choice="required")
