"""What clients may tell a chat template, and what they may not."""

from typing import Any

import msgspec
import pytest

from quire_engine.errors import RequestError
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.tokens import TokenizeRequest
from quire_engine.server.templates import (
    MAX_KWARGS_BYTES,
    RESERVED,
    TemplateChoices,
    choose_template,
    last_text,
)

ASKED = {"role": "user", "content": "hi"}


def ask(**parameters: Any) -> ChatRequest:
    return msgspec.convert({"model": "m", "messages": [ASKED], **parameters}, ChatRequest)


def choose(*, trusts: bool = False, **parameters: Any) -> TemplateChoices:
    return choose_template(ask(**parameters), trusts_templates=trusts)


def test_nothing_said_is_a_conversation_with_the_beginning_of_an_answer() -> None:
    assert choose() == TemplateChoices()
    assert choose(add_generation_prompt=None, continue_final_message=None) == TemplateChoices()


def test_switches_reach_the_template() -> None:
    kwargs = {"enable_thinking": False, "custom": {"deep": [1, None, "x"]}}
    assert choose(chat_template_kwargs=kwargs).variables == kwargs


def test_an_effort_and_documents_do_too_and_switches_win_over_an_effort() -> None:
    documents = [{"title": "a", "text": "b"}]
    variables = choose(documents=documents, reasoning_effort="low").variables
    assert variables == {
        "documents": documents, "reasoning_effort": "low", "enable_thinking": True,
    }  # fmt: skip
    assert choose(reasoning_effort="none").variables["enable_thinking"] is False
    kwargs = {"enable_thinking": False}
    chosen = choose(reasoning_effort="high", chat_template_kwargs=kwargs)
    assert chosen.variables["enable_thinking"] is False


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_that_a_template_has_anyway_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"'{name}' is not for clients") as caught:
        choose(chat_template_kwargs={name: "x"})
    assert caught.value.parameter == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"a": "x" * MAX_KWARGS_BYTES}, "bytes are more than"),
        ({"a": 2**64}, "a number is too large"),
        ({"a": [{"b": -(2**70)}]}, "a number is too large"),
    ],
)
def test_too_much_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        choose(chat_template_kwargs=kwargs)


@pytest.mark.parametrize(
    "parameters",
    [
        {"chat_template_kwargs": {str(number): 1 for number in range(65)}},
        {"chat_template_kwargs": [1]},
        {"chat_template": ""},
        {"documents": [{"title": 5}]},
        {"reasoning_effort": "a lot"},
        {"add_generation_prompt": "yes"},
    ],
)
def test_wrong_types_are_refused_when_decoding(parameters: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        ask(**parameters)


def test_a_template_is_taken_only_from_who_is_trusted() -> None:
    with pytest.raises(RequestError, match="--trust-request-chat-template") as caught:
        choose(chat_template="{{ messages }}")
    assert caught.value.parameter == "chat_template"
    assert choose(trusts=True, chat_template="{{ messages }}").template == "{{ messages }}"


def test_a_conversation_ends_in_one_way() -> None:
    with pytest.raises(RequestError, match="not together with add_generation_prompt"):
        choose(continue_final_message=True)
    chosen = choose(continue_final_message=True, add_generation_prompt=False)
    assert (chosen.continues_last, chosen.add_generation_prompt) == (True, False)


def test_tokenizing_takes_the_same() -> None:
    request = TokenizeRequest(chat_template_kwargs={"tools": []})
    with pytest.raises(RequestError, match="'tools'"):
        choose_template(request, trusts_templates=False)


def test_a_reasoning_has_both_names_in_a_template() -> None:
    said = {"role": "assistant", "content": "b"}
    for name in ("reasoning", "reasoning_content"):
        (message,) = ask(messages=[{**said, name: "a"}]).messages
        assert message.to_template() == {**said, "reasoning": "a", "reasoning_content": "a"}
        assert message.num_characters == 2


def test_the_last_text_is_that_of_all_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert last_text(ask(messages=[{"role": "user", "content": parts}]).messages) == "a\nb"
    assert last_text(ask(messages=[{"role": "assistant"}]).messages) == ""
