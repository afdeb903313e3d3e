"""The input of `/v1/responses`: its items, and the messages of a chat that they stand for.

    items       reasoning, message, function_call, function_call   function_call_output (each)
    messages    assistant: reasoning, content, both calls          tool

What one answer of a model consists of, in a row, is one message of a chat; what it says between its
calls and after them, too.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from quire_engine.errors import RequestError
from quire_engine.server.schemas.chat import ChatMessage, ContentPart
from quire_engine.server.schemas.tools import MAX_TOOLS, CalledFunction, ToolCall

_TEXT_PARTS = ("input_text", "output_text", "reasoning_text", "summary_text")
_MAX_ID_CHARACTERS = 256


class InputPart(msgspec.Struct, kw_only=True):
    """A part of an item's content."""

    type: str
    """input_text, output_text, or reasoning_text and summary_text of a reasoning."""
    text: str | None = None


class InputItem(msgspec.Struct, kw_only=True):
    """A message, or what an earlier response had beside its message, or a call's result."""

    type: str | None = "message"
    """message, reasoning, function_call or function_call_output; others are not supported."""
    role: Literal["user", "assistant", "system", "developer"] | None = None
    """Who says it; only of a message, which has one."""
    content: str | list[InputPart] | None = None
    summary: list[InputPart] | None = None
    """Of a reasoning without content."""
    call_id: str | None = None
    """Of a call and of its result: what joins them."""
    name: str | None = None
    """Of a call: the function."""
    arguments: str | None = None
    """Of a call: JSON, as the model wrote it."""
    output: str | list[InputPart] | None = None
    """Of a result: what the function gave."""


def to_messages(items: Sequence[InputItem]) -> list[ChatMessage]:
    """Write items as the messages of a chat.

    Raises
    ------
    RequestError
        One is not as it should be; the message names its place.
    """
    writer = _Writer()
    for index, item in enumerate(items):
        writer.add(item, f"input[{index}]")
    writer.end_answer()
    return writer.messages


class _Writer:
    """Collects what belongs to one answer until something else comes."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self._answer: ChatMessage | None = None
        """The assistant's message that more may be added to."""
        self._open_calls: set[str] = set()
        """Calls whose results may come."""

    def add(self, item: InputItem, place: str) -> None:
        match item.type:
            case None | "message":
                self._add_message(item, place)
            case "reasoning":
                self._add_reasoning("".join(_texts(item.content or item.summary or [], place)))
            case "function_call":
                self._add_call(item, place)
            case "function_call_output":
                self._add_result(item, place)
            case other:
                raise _refuse(f"{place}.type", f"items of type {other[:40]!r} are not supported")

    def end_answer(self) -> None:
        """Whatever comes belongs to another answer."""
        answer, self._answer = self._answer, None
        if answer is not None:
            if answer.content is None and not answer.tool_calls:
                answer.content = ""  # there was a reasoning alone
            self.messages.append(answer)

    def _add_message(self, item: InputItem, place: str) -> None:
        role, said = item.role, item.content
        if role is None or said is None:
            raise _refuse(f"{place}.{'role' if role is None else 'content'}", "required")
        content = said if isinstance(said, str) else _text_parts(said, place)
        if role == "assistant":
            answer = self._answer
            if answer is None or (answer.content is not None and not answer.tool_calls):
                self.end_answer()
                answer = self._answer = ChatMessage(role="assistant")
            answer.content = _join(answer.content, content)
            return
        self.end_answer()
        self._open_calls = set()
        self.messages.append(ChatMessage(role=role, content=content))

    def _add_reasoning(self, thought: str) -> None:
        if self._answer is not None and self._answer.tool_calls:
            thought_before = self._answer.reasoning_content or ""
            self._answer.reasoning_content = thought_before + thought
            return
        self.end_answer()
        self._answer = ChatMessage(role="assistant", reasoning_content=thought)

    def _add_call(self, item: InputItem, place: str) -> None:
        name, call_id = _need(item.name, f"{place}.name"), _read_id(item, place)
        function = CalledFunction(name=name, arguments=_need(item.arguments, f"{place}.arguments"))
        if self._answer is None:
            self._answer = ChatMessage(role="assistant")
        calls = self._answer.tool_calls
        if calls is None:
            calls = self._answer.tool_calls = []
            self._open_calls = set()
        if call_id in self._open_calls or len(calls) == MAX_TOOLS:
            raise _refuse(f"{place}.call_id", "another call has this id, or there are too many")
        self._open_calls.add(call_id)
        calls.append(ToolCall(id=call_id, function=function))

    def _add_result(self, item: InputItem, place: str) -> None:
        self.end_answer()
        call_id = _read_id(item, place)
        if call_id not in self._open_calls:
            reason = f"{call_id[:64]!r} is none of the open calls of the answer before it"
            raise _refuse(f"{place}.call_id", reason)
        self._open_calls.discard(call_id)
        if item.output is None:
            raise _refuse(f"{place}.output", "required")
        text = "".join(_texts(item.output, place, "output"))
        self.messages.append(ChatMessage(role="tool", tool_call_id=call_id, content=text))


def _read_id(item: InputItem, place: str) -> str:
    call_id = _need(item.call_id, f"{place}.call_id")
    if not 1 <= len(call_id) <= _MAX_ID_CHARACTERS:
        raise _refuse(f"{place}.call_id", f"1 to {_MAX_ID_CHARACTERS} characters")
    return call_id


def _need(value: str | None, place: str) -> str:
    if value is None:
        raise _refuse(place, "required")
    return value


def _join(
    before: str | list[ContentPart] | None, content: str | list[ContentPart]
) -> str | list[ContentPart]:
    """Join what an answer said before its calls, between them and after them."""
    if before is None:
        return content
    if isinstance(before, str) and isinstance(content, str):
        return before + content
    parts: list[ContentPart] = []
    for one in (before, content):
        parts += [ContentPart(type="text", text=one)] if isinstance(one, str) else one
    return parts


def _text_parts(content: list[InputPart], place: str) -> list[ContentPart]:
    return [ContentPart(type="text", text=text) for text in _texts(content, place)]


def _texts(content: str | list[InputPart], place: str, field: str = "content") -> list[str]:
    if isinstance(content, str):
        return [content]
    texts = []
    for index, part in enumerate(content):
        if part.type not in _TEXT_PARTS or part.text is None:
            raise _refuse(
                f"{place}.{field}[{index}]",
                f"parts of type {part.type[:40]!r} are not supported, or have no text;"
                " send input_text",
            )
        texts.append(part.text)
    return texts


def _refuse(place: str, reason: str) -> RequestError:
    return RequestError(f"{place}: {reason}", parameter=place)
