"""Chat templates: the model's own, in a sandbox, as transformers renders them."""

from datetime import datetime
from typing import Any

import pytest

from quire_engine.errors import ModelError, RequestError
from quire_engine.tokenizing.chat_template import ChatTemplate
from tests.unit.tokenizing.builders import CHATML

USER = {"role": "user", "content": "hi"}


def test_renders_a_conversation() -> None:
    messages = [{"role": "system", "content": "Be brief."}, USER]
    assert ChatTemplate(CHATML).render(messages) == (
        "<|start|>system\nBe brief.<|end|>\n<|start|>user\nhi<|end|>\n<|start|>assistant\n"
    )


def test_an_answer_can_be_left_without_a_beginning() -> None:
    text = ChatTemplate(CHATML).render([USER], add_generation_prompt=False)
    assert text == "<|start|>user\nhi<|end|>\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([], ""),
        (None, ""),
        ("", ""),
    ],
)
def test_content_is_text_parts_or_nothing(content: object, text: str) -> None:
    template = ChatTemplate("{{ messages[0].content }}|")
    assert template.render([{"role": "assistant", "content": content}]) == f"{text}|"


def test_other_parts_are_refused() -> None:
    with pytest.raises(RequestError, match="parts of type 'image_url' are not supported") as caught:
        ChatTemplate(CHATML).render([{"role": "user", "content": [{"type": "image_url"}]}])
    assert caught.value.parameter == "messages"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "refuses these messages"),
        ("{{ messages.append(1) }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ("{{ absent.field }}", "'absent' is undefined"),
    ],
)
def test_a_template_that_fails_refuses_the_request(source: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ChatTemplate(source).render([USER])


def test_a_template_that_is_not_valid_is_the_models_fault() -> None:
    with pytest.raises(ModelError, match="chat template is not valid: line 2"):
        ChatTemplate("\n{% if %}")


def test_helpers_that_published_templates_use() -> None:
    tools: list[dict[str, Any]] = [{"name": "größe", "about": "<b>"}]
    template = ChatTemplate(
        "{{ bos_token }}{% for t in tools %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ t | tojson }}{% endfor %}{{ strftime_now('%Y') }}",
        {"bos_token": "<s>"},
    )
    year = datetime.now().astimezone().year
    expected = '<s>{"name": "größe", "about": "<b>"}' + str(year)
    assert template.render([USER], tools=tools) == expected


@pytest.mark.parametrize(
    ("source", "content", "text"),
    [
        ("{{ messages[-1].content }}<end>", "So far ", "So far "),
        ("{{ messages[-1].content | trim }}<end>", "So far ", "So far"),
        ("{{ messages[-1].content | trim }} <end>", "So far", "So far"),
        ("{{ messages[-1].content.split('</think>')[-1] }}", "a</think>b", "b"),
        ("{{ messages[0].content }}|{{ messages[-1].content }}", "So far", "hi|So far"),
    ],
)
def test_the_last_message_can_be_left_open(source: str, content: str, text: str) -> None:
    messages = [USER, {"role": "assistant", "content": content}]
    rendered = ChatTemplate(source).render(
        messages, add_generation_prompt=False, continues_last=True
    )
    assert rendered.rstrip() == text.rstrip()
    assert "QUIRE" not in rendered


@pytest.mark.parametrize("source", ["{{ messages[0].content }}", "{{ messages[-1].content[:3] }}"])
def test_a_message_whose_end_is_not_written_cannot_be_continued(source: str) -> None:
    messages = [USER, {"role": "assistant", "content": "So far"}]
    with pytest.raises(RequestError, match="cannot be continued") as caught:
        ChatTemplate(source).render(messages, continues_last=True)
    assert caught.value.parameter == "continue_final_message"


@pytest.mark.parametrize("content", ["", None, []])
def test_nothing_cannot_be_continued(content: object) -> None:
    with pytest.raises(RequestError, match="no content to continue"):
        ChatTemplate(CHATML).render(
            [{"role": "assistant", "content": content}], continues_last=True
        )


def test_variables_do_not_replace_what_a_template_has_anyway() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ mood }}{{ bos }}", {"bos": "<s>"})
    assert template.render([USER], variables={"messages": [], "mood": "!"}) == "hi!<s>"
