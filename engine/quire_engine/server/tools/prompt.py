"""What the model is told of tools: the messages and definitions that its template gets."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from quire_engine.server.schemas.chat import ChatMessage
from quire_engine.server.schemas.tools import Tool
from quire_engine.server.tools.plain_prompt import write_without_tools
from quire_engine.server.tools.setup import ToolSetup

Message = dict[str, Any]

_SHORT_ID = re.compile("[A-Za-z0-9]{9}")


@dataclass(frozen=True, slots=True)
class Written:
    """A conversation as a template takes it."""

    messages: Sequence[Message]
    definitions: Sequence[Message] | None = None
    template: str | None = None
    """Another template than the model's usual one."""


def write_for_template(
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    setup: ToolSetup,
    *,
    brings_template: bool = False,
) -> Written:
    """Write a conversation, and the tools that the model is told of.

    Parameters
    ----------
    brings_template
        Whether the request has a template of its own, which may do with tools what it likes.
    """
    written = list(_write_messages(messages))
    definitions = [_define(tool) for tool in tools]
    if not (setup.reads_tools or brings_template):
        return Written(write_without_tools(written, definitions))
    if setup.has_short_ids:
        _shorten_ids(written)
    if setup.splits_calls:
        written = _split_calls(written)
    return Written(written, definitions or None, setup.template if definitions else None)


def _define(tool: Tool) -> Message:
    """A definition in the form that models were trained on: how strict it is, is not for them."""
    function = msgspec.to_builtins(tool.function)
    function.pop("strict", None)
    return {"type": "function", "function": function}


def _write_messages(messages: Sequence[ChatMessage]) -> Iterator[Message]:
    """Messages; results with the names of their functions, which some templates show."""
    names: dict[str, str] = {}
    for message in messages:
        plain = message.to_template()
        names |= {call.id: call.function.name for call in message.tool_calls or ()}
        if message.role == "tool" and message.tool_call_id in names:
            plain["name"] = names[message.tool_call_id]
        if not message.tool_calls:
            plain.pop("tool_calls", None)  # some templates only look whether there is a list
        yield plain


def _shorten_ids(messages: Sequence[Message]) -> None:
    """Replace ids that are not of 9 letters and digits, each by the same one wherever it comes."""
    for message in messages:
        if "tool_call_id" in message:
            message["tool_call_id"] = _shorten(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"] = _shorten(call["id"])


def _shorten(call_id: str) -> str:
    is_short = _SHORT_ID.fullmatch(call_id)
    return call_id if is_short else hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _split_calls(messages: Sequence[Message]) -> list[Message]:
    """Write calls that were made at once as if they had been made one after the other."""
    results = {
        message["tool_call_id"]: index
        for index, message in enumerate(messages)
        if message["role"] == "tool"
    }
    written: list[Message] = []
    moved: set[int] = set()
    for index, message in enumerate(messages):
        calls = message.get("tool_calls", [])
        if len(calls) < 2:
            if index not in moved:
                written.append(message)
            continue
        for number, call in enumerate(calls):
            first = message if number == 0 else {"role": "assistant", "content": None}
            written.append({**first, "tool_calls": [call]})
            result = results.get(call["id"])
            if result is not None:
                moved.add(result)
                written.append(messages[result])
    return written
