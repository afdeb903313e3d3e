"""Tools and messages of tools that make no sense are refused, with the place that is wrong."""

from typing import Any

import msgspec
import pytest

from quire_engine.errors import RequestError
from quire_engine.protocol.grammar import (
    CallOrJsonGrammar,
    JsonObjectGrammar,
    RegexGrammar,
    TaggedGrammar,
)
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.tools.formats import HERMES
from quire_engine.server.tools.setup import ToolSetup
from quire_engine.server.tools.use import ToolUse, choose_use
from quire_engine.tokenizing.simple import build_simple_tokenizer

TOKENIZER = build_simple_tokenizer()
USER = {"role": "user", "content": "hi"}


def tool(name: str = "add", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def calls(*ids: str) -> dict[str, Any]:
    made = [{"id": one, "function": {"name": "add", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str | None, **changes: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "3"} | changes


def use_of(*, setup: ToolSetup | None = None, **body: Any) -> ToolUse | None:
    request = msgspec.convert({"model": "m", "messages": [USER], **body}, ChatRequest)
    request.check()
    return choose_use(request, setup or ToolSetup(tool_format=HERMES), TOKENIZER)


def refusal(**body: Any) -> str:
    with pytest.raises(RequestError) as caught:
        use_of(**body)
    assert caught.value.parameter is not None
    assert str(caught.value).startswith(caught.value.parameter.split(".type")[0])
    return str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"type": "array"}, "parameters.type"),
        ({"type": "object", "properties": []}, "parameters.properties"),
        ({"properties": {"a": 7}}, "parameters.properties.a"),
        ({"properties": {"a": {"type": "text"}}}, "parameters.properties.a.type"),
        ({"properties": {"a": {"type": ["string", 3]}}}, "parameters.properties.a.type"),
        ({"required": "a"}, "parameters.required"),
        ({"properties": {"a": {"enum": "x"}}}, "parameters.properties.a.enum"),
        ({"properties": {"a": {"anyOf": {}}}}, "parameters.properties.a.anyOf"),
        ({"properties": {"a": {"items": "x"}}}, "parameters.properties.a.items"),
        ({"$defs": {"T": {"oneOf": [3]}}}, "parameters.$defs.T.oneOf[0]"),
    ],
)
def test_parameters_that_are_no_schema_are_refused(parameters: Any, place: str) -> None:
    assert refusal(tools=[tool(parameters=parameters)]).startswith(f"tools[0].function.{place}:")


def test_a_bottomless_schema_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}

    assert "nested more than 64 deep" in refusal(tools=[tool(parameters=deep)])


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/T"}}, "$defs": {"T": True}},
        {"properties": {"a": {"type": ["string", "null"], "items": [{}], "if": {}, "x-mine": 3}}},
    ],
)
def test_schemas_are_taken(parameters: Any) -> None:
    assert use_of(tools=[tool(parameters=parameters)]) is not None


def test_a_name_that_comes_twice_is_refused() -> None:
    message = refusal(tools=[tool("f"), tool("g"), tool("f")])

    assert message == "tools[2].function.name: 'f' is the name of tools[0] already"


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [tool(name)]} for name in ("", "two words", "naïve", "x" * 129)
    ] + [
        {"tools": [tool()] * 1000},
        {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
        {"tools": "add"},
        {"tools": [tool()], "tool_choice": "any"},
        {"tools": [tool()], "tool_choice": {"type": "function"}},
        {"messages": [{"role": "tool", "content": "3", "tool_call_id": 7}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
    ],
)  # fmt: skip
def test_what_is_no_tool_is_refused_by_its_type(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"tool|content"):
        use_of(**body)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"type": "function", "function": {"name": "sub"}}, "'sub' is none of the tools"),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [tool("add"), tool("mul")]},
            },
            "'mul' is none of the tools",
        ),
    ],
)
def test_a_choice_of_an_unknown_tool_is_refused(choice: Any, message: str) -> None:
    assert message in refusal(tools=[tool("add")], tool_choice=choice)


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_tool_cannot_be_called_for_without_tools(tools: Any, choice: Any) -> None:
    assert "together with tools" in refusal(tools=tools, tool_choice=choice)


@pytest.mark.parametrize("choice", [None, "none", "auto"])
def test_without_tools_answers_are_text(choice: Any) -> None:
    assert use_of(tool_choice=choice) is None
    assert use_of(tools=[], tool_choice=choice) is None


def test_tools_that_may_not_be_called_are_of_no_use() -> None:
    assert use_of(tools=[tool()], tool_choice="none") is None


def test_only_allowed_tools_may_be_called() -> None:
    allowed = {"mode": "required", "tools": [tool("g")]}
    use = use_of(
        tools=[tool("f"), tool("g")],
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
    )

    assert use is not None
    assert [one.function.name for one in use.tools] == ["g"]
    assert use.is_forced
    assert not use.is_single


def test_what_has_to_be_called_is_what_the_answer_looks_like() -> None:
    use = use_of(
        tools=[tool("f", parameters={"type": "object"}), tool("g")], tool_choice="required"
    )
    assert use is not None
    calls = use.grammar(JsonObjectGrammar())

    assert isinstance(calls, TaggedGrammar)
    assert [tag.begin for tag in calls.tags] == [
        f'<tool_call>\n{{"name": "{name}", "arguments": ' for name in "fg"
    ]
    assert calls.tags[0].schema == {"type": "object"}
    assert calls.tags[1].schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert (calls.separator, calls.is_single) == ("\n", False)


def test_what_may_be_called_is_an_alternative_to_the_form_that_is_asked_for() -> None:
    use = use_of(tools=[tool()], parallel_tool_calls=False)
    assert use is not None
    either = use.grammar(JsonObjectGrammar())

    assert use.grammar(None) is None
    assert isinstance(either, CallOrJsonGrammar)
    assert either.calls.is_single
    assert either.content == JsonObjectGrammar()
    with pytest.raises(RequestError, match="not together with tools"):
        use.grammar(RegexGrammar("a+"))


def test_a_model_whose_calls_nobody_could_find_gets_no_tools() -> None:
    with pytest.raises(RequestError, match="--tool-call-parser"):
        use_of(setup=ToolSetup(), tools=[tool()])
    assert use_of(setup=ToolSetup(), tools=[tool()], tool_choice="none") is None


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([USER, result(None)], "messages[1].tool_call_id: required"),
        ([USER, result("a")], "messages[1].tool_call_id: 'a' is none of the calls"),
        ([USER, calls("a"), result("b")], "messages[2].tool_call_id: 'b' is none of the calls"),
        ([USER, calls("a"), calls("b"), result("a")], "messages[3].tool_call_id: 'a' is none"),
        ([calls("a"), result("a", name="sub")], "messages[1].name: the call 'a' is of 'add'"),
        ([calls("a", "a")], "messages[0].tool_calls: two calls have the same id"),
        ([{**calls("a"), "role": "user", "content": ""}], "messages[0].tool_calls: only the"),
        ([calls("a"), result("a", content=None)], "messages[1].content: required"),
    ],
)
def test_messages_of_tools_that_fit_no_call_are_refused(messages: Any, message: str) -> None:
    assert message in refusal(messages=messages)


def test_conversations_with_calls_and_results_are_taken_with_and_without_tools() -> None:
    messages = [USER, calls("a", "b"), result("b", name="add"), result("a"), USER]

    assert use_of(messages=messages) is None
    assert use_of(messages=messages, tools=[tool()]) is not None


@pytest.mark.parametrize(
    ("body", "instead"),
    [
        ({"functions": [{"name": "f"}]}, "tools"),
        ({"function_call": {"name": "f"}}, "tool_choice"),
    ],
)
def test_functions_of_old_are_refused_with_what_replaced_them(
    body: dict[str, Any], instead: str
) -> None:
    assert f"send {instead} instead" in refusal(**body)


def test_neutral_values_of_functions_of_old_change_nothing() -> None:
    assert use_of(functions=[], function_call="none") is None
