"""What models are told of tools, by templates of each kind."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from quire_engine.protocol.messages import TokenDelta
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.schemas.chat import ChatMessage, ChatRequest
from quire_engine.server.schemas.tools import Tool
from quire_engine.server.text_maker import TextChoices, TextMaker
from quire_engine.server.tools.events import Content
from quire_engine.server.tools.formats import (
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    ToolFormat,
    choose_format,
)
from quire_engine.server.tools.prompt import write_for_template
from quire_engine.server.tools.setup import ToolSetup, choose_setup
from quire_engine.server.tools.use import choose_use
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.simple import PLAIN_CHAT_TEMPLATE, build_simple_tokenizer
from quire_engine.tokenizing.tokenizer import Tokenizer
from tests.unit.tokenizing.builders import train_byte_level

QWEN = """\
{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
{% endif %}
{%- for m in messages %}{{ m.role }}: {{ m.content }}
{%- for call in m.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}"""
LLAMA = """\
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if tools is not none %}Respond in the format {"name": function name, "parameters": dictionary of
argument name and its value}. {% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}
{%- for m in messages %}
{%- if 'tool_calls' in m %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception("only single tool-calls at once!") }}
{%- endif %}{"name": "{{ m.tool_calls[0].function.name }}"}
{%- else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"""
MISTRALS = """\
{%- for m in messages %}
{%- if m.tool_calls is defined and m.tool_calls is not none %}[TOOL_CALLS] [
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("ids are of 9 letters and digits") }}{% endif -%}
{{ call.function | tojson }}{% endfor %}]
{%- elif m.role == 'tool' %}{{ m.tool_call_id }}={{ m.content }}
{%- else %}{{ m.content }}{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"""
TEXTUAL = """\
{{ tools }}{% for m in messages %}{% for call in m.tool_calls %}{{ 'x' + call.function.arguments }}
{%- endfor %}{% endfor %}"""

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds <numbers>",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "strict": True,
    },
}
SPOKEN: list[dict[str, Any]] = [
    {"role": "user", "content": "1 + 2?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a":1}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a":2}'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "one"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "two"}]},
]


def setup_of(template: str, setting: str = "auto") -> ToolSetup:
    tokenizer = build_simple_tokenizer()
    tokenizer.chat_template = ChatTemplate(template)
    return choose_setup(setting, tokenizer)


def render(template: str, messages: Sequence[Any] = SPOKEN, tools: Sequence[Any] = (ADD,)) -> str:
    written = write_for_template(
        msgspec.convert(messages, list[ChatMessage]),
        msgspec.convert(tools, list[Tool]),
        setup_of(template),
    )
    return ChatTemplate(template).render(written.messages, tools=written.definitions)


@pytest.mark.parametrize(
    ("template", "found"),
    [
        (PLAIN_CHAT_TEMPLATE, HERMES),
        (QWEN, HERMES),
        (LLAMA, LLAMA3_JSON),
        (MISTRALS, MISTRAL),
        ("{{ tools }} write <tool_call><function=name>", None),
        ("{{ tools }} write them as you like", None),
        (None, None),
    ],
)
def test_a_template_shows_how_calls_are_written(
    template: str | None, found: ToolFormat | None
) -> None:
    assert choose_format("auto", template) == found


def test_what_is_configured_is_taken() -> None:
    assert choose_format("mistral", PLAIN_CHAT_TEMPLATE) is MISTRAL
    assert setup_of(QWEN, "llama3_json").tool_format is LLAMA3_JSON


def test_newer_mistrals_name_first() -> None:
    newer = choose_format("auto", "{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}")

    assert newer is not None
    assert (newer.name, newer.begin, newer.end) == ("mistral", "[TOOL_CALLS]%[ARGS]", "")


def test_definitions_come_to_the_template_as_models_know_them() -> None:
    first = render(QWEN).splitlines()[0].removeprefix("<tools>").removesuffix("</tools>")

    assert json.loads(first) == {
        "type": "function",
        "function": {key: value for key, value in ADD["function"].items() if key != "strict"},  # type: ignore[attr-defined]
    }
    assert "<numbers>" in first


def test_without_tools_a_template_sees_none() -> None:
    assert "<tools>" not in render(QWEN, tools=())
    assert "Respond" not in render(LLAMA, SPOKEN[:1], tools=())


def test_arguments_are_objects_where_a_template_wants_them() -> None:
    assert '{"name": "add", "arguments": {"a": 1}}' in render(QWEN)


def test_arguments_are_the_clients_own_text_where_a_template_wants_that() -> None:
    assert render(TEXTUAL).endswith('x{"a":1}x{"a":2}')


@pytest.mark.parametrize("broken", ["", '{"a": ', "[1]", "nonsense"])
def test_broken_arguments_do_not_poison_a_conversation(broken: str) -> None:
    function = {"name": "add", "arguments": broken}
    messages = [SPOKEN[0], {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}]

    for template in (QWEN, LLAMA, MISTRALS, TEXTUAL, PLAIN_CHAT_TEMPLATE):
        assert render(template, messages)


def test_calls_at_once_are_split_for_templates_that_take_one() -> None:
    text = render(LLAMA)

    assert text.endswith('{"name": "add"}[tool]one{"name": "add"}[tool]two')


def test_calls_without_all_results_are_split_too() -> None:
    assert render(LLAMA, SPOKEN[:3]).endswith('{"name": "add"}[tool]one{"name": "add"}')


def test_mistral_gets_short_ids_that_still_fit_together() -> None:
    text = render(MISTRALS)
    own = [{**SPOKEN[1], "tool_calls": [{**SPOKEN[1]["tool_calls"][0], "id": "abcDEF123"}]}]

    ids = [part.split("=")[0][-9:] for part in text.replace("two", "one").split("one")[:2]]
    assert len(set(ids)) == 2
    assert all(one.isalnum() for one in ids)
    assert render(MISTRALS, own)


def test_a_template_without_tools_has_them_in_its_messages() -> None:
    text = render(PLAIN_CHAT_TEMPLATE)

    lines = text.splitlines()
    assert lines[0].startswith("user: You can call functions.")
    assert '"description": "Adds <numbers>"' in lines[2]
    assert "1 + 2?" in lines
    assert 'assistant: <tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call>\n' in text
    assert text.count("user: ") == 2
    assert "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>" in text


def test_a_system_message_is_where_definitions_go() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *SPOKEN[:1]]
    text = render(PLAIN_CHAT_TEMPLATE, messages)

    assert text.startswith("system: Be brief.\n\nYou can call functions.")
    assert render(PLAIN_CHAT_TEMPLATE, SPOKEN[1:]).startswith("system: You can call functions.")


def test_a_conversation_without_tools_is_as_it_was() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *SPOKEN[:1]]

    text = render(PLAIN_CHAT_TEMPLATE, messages, ())
    assert text == "system: Be brief.\nuser: 1 + 2?\nassistant: "


def test_markers_that_are_control_tokens_are_left_in_the_text() -> None:
    backend = train_byte_level()
    backend.add_special_tokens(["[TOOL_CALLS]", "[ARGS]", "[INST]"])
    tokenizer = Tokenizer(backend, bos_token_id=None, eos_token_ids=(), chat_template=None)
    text = '[INST]the cat[TOOL_CALLS]add[ARGS]{"a": 1}'
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    messages = msgspec.convert(SPOKEN[:1], list[ChatMessage])
    request = ChatRequest(model="m", messages=messages, tools=msgspec.convert([ADD], list[Tool]))
    use = choose_use(request, ToolSetup(tool_format=MISTRAL), tokenizer)
    assert use is not None

    maker = TextMaker(
        tokenizer,
        tokenizer.encode("hi"),
        SamplingParams(max_tokens=100),
        TextChoices(control_tokens=use.control_tokens),
    )
    pieces = [
        maker.take(TokenDelta(request_id="r", token_ids=[token_id])) for token_id in token_ids
    ]

    assert "".join(piece.text for piece in pieces) == text.removeprefix("[INST]")
    parser = use.make_parser()
    found = parser.push("the cat[TOOL_CALLS]no call") + parser.finish()
    assert "".join(event.text for event in found if isinstance(event, Content)) == "the catno call"
