"""Calls are found in any text however it is cut, and nothing of the rest is lost."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from quire_engine.server.tools.events import CallArguments, CallBegin, Content
from quire_engine.server.tools.formats import FORMATS, HERMES, LLAMA3_JSON, MISTRAL, ToolFormat
from quire_engine.server.tools.parser import ToolParser

NAMES = {"get_weather", "add", "f"}
Parsed = tuple[str, list[tuple[str, str]]]


def parse(tool_format: ToolFormat, *pieces: str, **options: Any) -> Parsed:
    """Content and calls of a text that comes in these pieces."""
    parser = ToolParser(tool_format, NAMES, **options)
    events = [event for piece in pieces for event in parser.push(piece)]
    content, calls = "", []
    for event in [*events, *parser.finish()]:
        match event:
            case Content(text):
                content += text
            case CallBegin(name):
                calls.append([name, ""])
            case CallArguments(text):
                calls[-1][1] += text
    assert parser.num_calls == len(calls)
    return content, [(name, arguments) for name, arguments in calls]


def hermes(*calls: str) -> str:
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


ADD = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
SAID = ("add", '{"a": 1, "b": 2}')


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (hermes(ADD), "", [SAID]),
        (f"I'll add.\n\n{hermes(ADD)}", "I'll add.", [SAID]),
        (hermes(ADD, ADD), "", [SAID, SAID]),
        (f"{hermes(ADD)}\nDone.\n", "Done.", [SAID]),
        (f"First\n{hermes(ADD)}\nthen\n{hermes(ADD)}", "First\nthen", [SAID, SAID]),
        (f"<tool_call>{ADD}</tool_call>", "", [SAID]),
        (f"<tool_call>{ADD}", "", [SAID]),
        (hermes(f"[{ADD}, {ADD}]"), "", [SAID, SAID]),
        (hermes(f"{ADD}\n{ADD}"), "", [SAID, SAID]),
        (hermes('{"arguments": {"a": [{}]}, "name": "add"}'), "", [("add", '{"a": [{}]}')]),
        (hermes('{"name": "add", "id": 7, "parameters": {}}'), "", [("add", "{}")]),
        (hermes('{"name": "f"}'), "", [("f", "{}")]),
        (hermes('{"name": "f", "arguments": null}'), "", [("f", "{}")]),
        (hermes('{"name": "f", "arguments": "{\\"a\\": 1}"}'), "", [("f", '{"a": 1}')]),
        (
            hermes('{"name": "f", "arguments": {"a": "</tool_call> \\" }"}}'),
            "",
            [("f", '{"a": "</tool_call> \\" }"}')],
        ),
    ],
)
def test_calls_and_content_are_told_apart(
    text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    assert parse(HERMES, text) == (content, calls)


@pytest.mark.parametrize(
    "text",
    [
        "Nothing to call.\n",
        "  a < b and <tool_ is no tag, nor is </tool_call>  ",
        "an end that may be a tag <tool_ca",
        "<tool_call>",
        hermes(""),
        hermes("add(1, 2)"),
        hermes("[]"),
        hermes('{"name": "unheard_of", "arguments": {}}'),
        hermes('{"name": 7, "arguments": {}}'),
        hermes('{"name": "add", "arguments": [1, 2]}'),
        hermes('{"name": "add", "arguments": "1, 2"}'),
        hermes('{"name" "add"}'),
        hermes('{"arguments": {"a": 1}}'),
        hermes("{'name': 'add', 'arguments': {}}"),
        '<tool_call>\n{"name": "add", "argum',
        '<tool_call>\n{"name": "ad',
    ],
)
def test_what_is_no_call_stays_content_to_the_letter(text: str) -> None:
    assert parse(HERMES, text) == (text, [])


def test_a_broken_call_does_not_hide_the_next() -> None:
    content, calls = parse(HERMES, f"<tool_call>oh {hermes(ADD)}")

    assert (content, calls) == ("<tool_call>oh", [SAID])


@pytest.mark.parametrize(
    ("broken", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": 1}', '{"a": 1}'),  # the last bracket is missing
        ('{"name": "f", "arguments": {"a": [1}', '{"a": [1}\n'),
        ('{"name": "f", "arguments": {a: 1}}', "{a: 1}"),
    ],
)
def test_broken_arguments_are_as_the_model_wrote_them(broken: str, arguments: str) -> None:
    assert parse(HERMES, f"{hermes(broken)}\nSo?") == ("So?", [("f", arguments)])


def test_a_call_that_is_cut_short_has_what_there_is_of_its_arguments() -> None:
    text = '<tool_call>\n{"name": "f", "arguments": {"a": "some te'

    assert parse(HERMES, text) == ("", [("f", '{"a": "some te')])


def test_a_single_call_is_the_last_thing_that_is_said() -> None:
    text = f"Well. {hermes(ADD, ADD)} And so on."

    assert parse(HERMES, text, is_single=True) == ("Well.", [SAID])


def test_llamas_calls_begin_the_text_or_follow_a_token() -> None:
    call = '{"name": "add", "parameters": {"a": 1, "b": 2}}'

    assert parse(LLAMA3_JSON, call) == ("", [SAID])
    assert parse(LLAMA3_JSON, f"\n{call}; {call}") == ("", [SAID, SAID])
    assert parse(LLAMA3_JSON, f"<|python_tag|>{call}") == ("", [SAID])
    assert parse(LLAMA3_JSON, f"So: {call}") == (f"So: {call}", [])


def test_json_that_was_asked_for_is_no_call() -> None:
    text = '{"name": "Ada", "parameters": {"age": 36}}\n'

    assert parse(LLAMA3_JSON, text) == (text, [])


def test_a_control_token_before_something_else_is_no_content() -> None:
    text = "<|python_tag|>print(1)"

    assert parse(LLAMA3_JSON, text, silent_openers=True) == ("print(1)", [])
    assert parse(LLAMA3_JSON, text) == (text, [])


def test_mistral_writes_a_list_or_names_first() -> None:
    named = '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}'
    numbered = '[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{"a": 1, "b": 2}'

    assert parse(MISTRAL, f"[TOOL_CALLS] [{ADD}, {ADD}]") == ("", [SAID, SAID])
    assert parse(MISTRAL, f"Well.{named}{numbered}") == ("Well.", [SAID, SAID])
    assert parse(MISTRAL, "[TOOL_CALLS]nobody{}") == ("[TOOL_CALLS]nobody{}", [])


texts = st.text(alphabet='ab"\\{}[]<>/ é\n', max_size=6) | st.just("</tool_call>")
values = st.none() | st.integers() | texts | st.lists(texts, max_size=2)
objects = st.dictionaries(texts, values | st.dictionaries(texts, values, max_size=2), max_size=3)
indents = st.sampled_from([None, 1, 2])
calm = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Nothing here is measured, and other programs may take the machine at any time."""


@st.composite
def spoken(draw: st.DrawFn, tool_format: ToolFormat) -> tuple[str, Parsed]:
    """A text with calls as a model writes it, and what is in it."""
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        arguments = json.dumps(
            draw(objects), indent=draw(indents), ensure_ascii=draw(st.booleans())
        )
        calls.append((draw(st.sampled_from(sorted(NAMES))), arguments))
    marked = [
        tool_format.begin.replace("%", name) + arguments + tool_format.end
        for name, arguments in calls
    ]
    content = "" if tool_format.starts_bare else draw(st.sampled_from(["", "Well,", "a <tool b"]))
    space = draw(st.sampled_from(["", " ", "\n\n"]))
    return content + space + tool_format.separator.join(marked) + space, (content, calls)


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=list(FORMATS))
@calm
@given(data=st.data())
def test_every_call_is_found_with_its_arguments_to_the_letter(
    tool_format: ToolFormat, data: st.DataObject
) -> None:
    text, expected = data.draw(spoken(tool_format))

    assert parse(tool_format, *cut(text, data)) == expected


fragments = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "<tool", "_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]",
        "<|python_tag|>", '{"name": ', '"add"', '"f"', '"x"', ', "arguments": ', '"parameters": ',
        "{", "}", "[", "]", '"', "\\", ",", ";", ":", " ", "\n", "null", "12", "é", "text", ADD,
        '{"name": "f", "arguments": ', "f", "<", "add",
    ]
)  # fmt: skip


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=list(FORMATS))
@calm
@given(parts=st.lists(fragments, max_size=24), is_single=st.booleans(), data=st.data())
def test_no_cut_of_any_text_changes_what_is_found(
    tool_format: ToolFormat, parts: list[str], is_single: bool, data: st.DataObject
) -> None:
    text = "".join(parts)
    whole = parse(tool_format, text, is_single=is_single)

    assert parse(tool_format, *text, is_single=is_single) == whole
    assert parse(tool_format, *cut(text, data), is_single=is_single) == whole
    if not whole[1]:
        assert whole[0] == text


@calm
@given(st.text())
@example("\n <tool_call> \n")
def test_text_without_calls_is_content_to_the_letter(text: str) -> None:
    assert parse(HERMES, *text) == (text, [])


def cut(text: str, data: st.DataObject) -> list[str]:
    """The text in pieces, as tokens cut it."""
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
