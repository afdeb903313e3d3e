"""Items of a response while they are streamed: a reasoning, a message, or a call of a function.

Each says which events open it, add to it and close it; fields that all events have are added by
whoever sends them.
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from quire_engine.server.schemas.response_objects import (
    EventType,
    FunctionCallItem,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
)

Event = tuple[EventType, dict[str, Any]]


class OpenItem(ABC):
    """An item that is being written.

    Parameters
    ----------
    output_index
        Its place in the response's output.
    """

    id_prefix: ClassVar[str]

    def __init__(self, output_index: int) -> None:
        self.id = f"{self.id_prefix}_{uuid.uuid4().hex}"
        self._output_index = output_index
        self._texts: list[str] = []

    @abstractmethod
    def item(self, status: ItemStatus) -> OutputItem:
        """The item as far as it has come; one in progress has no text yet."""

    @abstractmethod
    def delta(self, text: str) -> Event:
        """More of its text."""

    def open(self) -> Iterator[Event]:
        """What begins it."""
        item = self.item("in_progress")
        yield "response.output_item.added", {"output_index": self._output_index, "item": item}

    def close(self, status: ItemStatus) -> Iterator[Event]:
        """What ends it."""
        item = self.item(status)
        yield "response.output_item.done", {"output_index": self._output_index, "item": item}

    @property
    def text(self) -> str:
        """All of it that came so far."""
        return "".join(self._texts)

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self._output_index}

    def _add(self, text: str) -> dict[str, Any]:
        self._texts.append(text)
        return {**self._place, "delta": text}


class _WithPart(OpenItem):
    """An item whose text is in one part of its content."""

    @property
    def _place(self) -> dict[str, Any]:
        return {**super()._place, "content_index": 0}

    @abstractmethod
    def _part(self, text: str) -> ReasoningText | OutputText: ...

    @abstractmethod
    def _done(self) -> Event: ...

    def open(self) -> Iterator[Event]:
        yield from super().open()
        yield "response.content_part.added", {**self._place, "part": self._part("")}

    def close(self, status: ItemStatus) -> Iterator[Event]:
        yield self._done()
        yield "response.content_part.done", {**self._place, "part": self._part(self.text)}
        yield from super().close(status)


class OpenReasoning(_WithPart):
    """What the model thinks."""

    id_prefix = "rs"

    def item(self, status: ItemStatus) -> ReasoningItem:
        """The item as far as it has come."""
        content = [] if status == "in_progress" else [self._part(self.text)]
        return ReasoningItem(id=self.id, status=status, content=content)

    def delta(self, text: str) -> Event:
        """More of its text."""
        return "response.reasoning_text.delta", self._add(text)

    def _part(self, text: str) -> ReasoningText:
        return ReasoningText(text=text)

    def _done(self) -> Event:
        return "response.reasoning_text.done", {**self._place, "text": self.text}


class OpenMessage(_WithPart):
    """What the model says."""

    id_prefix = "msg"

    def item(self, status: ItemStatus) -> OutputMessage:
        """The item as far as it has come."""
        content = [] if status == "in_progress" else [self._part(self.text)]
        return OutputMessage(id=self.id, status=status, content=content)

    def delta(self, text: str) -> Event:
        """More of its text."""
        return "response.output_text.delta", {**self._add(text), "logprobs": []}

    def _part(self, text: str) -> OutputText:
        return OutputText(text=text)

    def _done(self) -> Event:
        return "response.output_text.done", {**self._place, "text": self.text, "logprobs": []}


class OpenCall(OpenItem):
    """A call of a function.

    Parameters
    ----------
    call_id
        What its result will be sent back with.
    """

    id_prefix = "fc"

    def __init__(self, output_index: int, name: str, call_id: str) -> None:
        super().__init__(output_index)
        self._name = name
        self._call_id = call_id

    def item(self, status: ItemStatus) -> FunctionCallItem:
        """The item as far as it has come."""
        return FunctionCallItem(
            id=self.id, status=status, call_id=self._call_id, name=self._name, arguments=self.text
        )

    def delta(self, text: str) -> Event:
        """More of its text."""
        return "response.function_call_arguments.delta", self._add(text)

    def close(self, status: ItemStatus) -> Iterator[Event]:
        """What ends it."""
        whole = {**self._place, "name": self._name, "arguments": self.text}
        yield "response.function_call_arguments.done", whole
        yield from super().close(status)
