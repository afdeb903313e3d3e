"""Items of a response's input, as the messages that they stand for."""

import pytest

from quire_engine.errors import RequestError
from quire_engine.server.schemas.response_input import InputItem, to_messages

USER = InputItem(role="user", content="Weather?")


def call(call_id: str) -> InputItem:
    return InputItem(type="function_call", call_id=call_id, name="get", arguments="{}")


def result(call_id: str) -> InputItem:
    return InputItem(type="function_call_output", call_id=call_id, output="sun")


def said(text: str) -> InputItem:
    return InputItem(role="assistant", content=text)


def thought(text: str) -> InputItem:
    return InputItem(type="reasoning", content=None, summary=None)


@pytest.mark.parametrize(
    "between", [[], [said("and now")], [thought("")], [said("and"), said(" now")]]
)
def test_what_is_said_between_calls_belongs_to_their_answer(between: list[InputItem]) -> None:
    items = [USER, said("first "), call("1"), *between, call("2"), result("2"), result("1")]
    messages = to_messages(items)

    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool"]
    assert [one.id for one in messages[1].tool_calls or []] == ["1", "2"]
    text = "first " + "".join(str(one.content) for one in between if one.role)
    assert messages[1].content == text
    assert [message.tool_call_id for message in messages[2:]] == ["2", "1"]


@pytest.mark.parametrize(
    "items",
    [
        [USER, result("1")],
        [USER, call("1"), result("1"), result("1")],
        [USER, call("1"), USER, result("1")],
        [USER, call("1"), call("1")],
        [USER, call("1"), result("1"), call("2"), result("1")],
    ],
)
def test_results_answer_open_calls_once(items: list[InputItem]) -> None:
    with pytest.raises(RequestError, match="call_id"):
        to_messages(items)
