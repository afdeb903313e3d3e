"""Responses in bytes: a view over the pieces that chat completions are made of.

    response.created, response.in_progress
        for a reasoning, then for a message:
        output_item.added, content_part.added, deltas, their done, content_part.done,
        output_item.done
    response.completed, or response.incomplete; at any point response.failed

Every event has its number. There is no [DONE]: the last event says that it is the last.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from quire_engine.server.answers import AnswerFormat, WholeAnswer
from quire_engine.server.errors import ApiError
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.logprobs import StopReason
from quire_engine.server.schemas.response_objects import (
    EventType,
    IncompleteDetails,
    ItemStatus,
    OutputMessage,
    OutputText,
    PlainText,
    ReasoningItem,
    ReasoningText,
    ResponseFailure,
    ResponseObject,
    ResponseReasoning,
    ResponseStatus,
    ResponseStreamEvent,
    ResponseText,
    to_response_usage,
)
from quire_engine.server.schemas.responses import ResponsesRequest
from quire_engine.server.schemas.usage import EndReason, Usage
from quire_engine.server.text_maker import Piece

_encode = msgspec.json.Encoder().encode
Item = ReasoningItem | OutputMessage


class _OpenItem:
    """An item of the output that is being streamed."""

    def __init__(self, *, is_reasoning: bool, output_index: int) -> None:
        self.is_reasoning = is_reasoning
        self.output_index = output_index
        self.id = f"{'rs' if is_reasoning else 'msg'}_{uuid.uuid4().hex}"
        self.texts: list[str] = []

    @property
    def text(self) -> str:
        """All of it that came so far."""
        return "".join(self.texts)

    @property
    def place(self) -> dict[str, Any]:
        """The fields of an event that say where its text belongs."""
        return {"item_id": self.id, "output_index": self.output_index, "content_index": 0}

    def part(self, text: str) -> ReasoningText | OutputText:
        """A part of its content."""
        return ReasoningText(text=text) if self.is_reasoning else OutputText(text=text)

    def item(self, status: ItemStatus) -> Item:
        """The item; one in progress has no content yet."""
        text = [] if status == "in_progress" else [self.text]
        if self.is_reasoning:
            parts = [ReasoningText(text=one) for one in text]
            return ReasoningItem(id=self.id, status=status, content=parts)
        content = [OutputText(text=one) for one in text]
        return OutputMessage(id=self.id, status=status, content=content)


class ResponsesAnswer(AnswerFormat):
    """The answer of `/v1/responses`.

    Parameters
    ----------
    request
        As it came.
    chat
        The chat request that it stands for.
    """

    def __init__(self, request: ResponsesRequest, chat: ChatRequest) -> None:
        super().__init__(chat, None, "resp")
        self.id = f"resp_{uuid.uuid4().hex}"
        self._request = request
        self._num_events = 0
        self._open: _OpenItem | None = None
        self._output: list[Item] = []
        self._end_reason: EndReason = "stop"

    def first_event(self, index: int) -> bytes:  # noqa: ARG002 - there is one answer
        """That it has begun."""
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def shows(self, piece: Piece) -> bool:
        """Whether there is something in a piece that the client is to see."""
        return bool(piece.text or piece.reasoning)

    def text_event(
        self,
        index: int,  # noqa: ARG002
        piece: Piece,
        usage: Usage | None = None,  # noqa: ARG002 - only the end has counts
    ) -> bytes:
        """A piece of the reasoning, of the message, or of both."""
        events = b""
        for text, is_reasoning in ((piece.reasoning, True), (piece.text, False)):
            if text:
                events += self._open_item(is_reasoning) + self._delta(text)
        return events

    def finish_event(
        self,
        index: int,
        piece: Piece,
        finish_reason: EndReason,
        stop_reason: StopReason,  # noqa: ARG002
        usage: Usage | None = None,  # noqa: ARG002
    ) -> bytes:
        """The last piece, and the end of its item: without any text that of an empty message."""
        self._end_reason = finish_reason
        events = self.text_event(index, piece)
        if self._open is None and not self._output:
            events += self._open_item(is_reasoning=False)
        return events + self._close_item(_status_of(finish_reason))

    def usage_event(self, usage: Usage) -> bytes:
        """The whole response, with its token counts."""
        status = _status_of(self._end_reason)
        response = self._response(status, self._output, usage)
        return self._event(
            "response.completed" if status == "completed" else "response.incomplete",
            response=response,
        )

    def end_events(self, usage: Usage) -> bytes:
        """The end of the stream."""
        return self.usage_event(usage)

    def error_events(self, error: ApiError) -> bytes:
        """The end of a stream that failed."""
        response = self._response("failed", self._output)
        is_limit = error.status == 429
        response.error = ResponseFailure(
            code="rate_limit_exceeded" if is_limit else "server_error", message=error.message
        )
        return self._event("response.failed", response=response)

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> bytes:
        """The response in one body."""
        (answer,) = answers
        status = _status_of(answer.finish_reason)
        output: list[Item] = []
        texts = [(answer.reasoning, True)] if answer.reasoning else []
        if answer.text or not texts:
            texts.append((answer.text, False))
        for index, (text, is_reasoning) in enumerate(texts):
            item = _OpenItem(is_reasoning=is_reasoning, output_index=index)
            item.texts.append(text)
            is_last = index == len(texts) - 1
            output.append(item.item(status if is_last else "completed"))
        return _encode(self._response(status, output, usage))

    def _text_chunk(
        self,
        index: int,  # noqa: ARG002
        piece: Piece,  # noqa: ARG002
        usage: object,  # noqa: ARG002
    ) -> msgspec.Struct:
        raise RuntimeError("bug: a piece of a response is several events, and no chunk")

    def _open_item(self, is_reasoning: bool) -> bytes:
        """Open an item, unless it is open; closes the one before."""
        if self._open is not None and self._open.is_reasoning == is_reasoning:
            return b""
        events = self._close_item("completed")
        opened = self._open = _OpenItem(is_reasoning=is_reasoning, output_index=len(self._output))
        return (
            events
            + self._event(
                "response.output_item.added",
                output_index=opened.output_index,
                item=opened.item("in_progress"),
            )
            + self._event("response.content_part.added", **opened.place, part=opened.part(""))
        )

    def _delta(self, text: str) -> bytes:
        if self._open is None:
            raise RuntimeError("bug: there is no item to add a text to")
        self._open.texts.append(text)
        if self._open.is_reasoning:
            return self._event("response.reasoning_text.delta", **self._open.place, delta=text)
        return self._event(
            "response.output_text.delta", **self._open.place, delta=text, logprobs=[]
        )

    def _close_item(self, status: ItemStatus) -> bytes:
        """Close the open item, if there is one."""
        closed, self._open = self._open, None
        if closed is None:
            return b""
        item, text = closed.item(status), closed.text
        self._output.append(item)
        if closed.is_reasoning:
            done = self._event("response.reasoning_text.done", **closed.place, text=text)
        else:
            done = self._event("response.output_text.done", **closed.place, text=text, logprobs=[])
        return (
            done
            + self._event("response.content_part.done", **closed.place, part=closed.part(text))
            + self._event("response.output_item.done", output_index=closed.output_index, item=item)
        )

    def _event(self, kind: EventType, **fields: Any) -> bytes:  # noqa: ANN401 - fields of many types
        event = ResponseStreamEvent(type=kind, sequence_number=self._num_events, **fields)
        self._num_events += 1
        return b"event: " + kind.encode() + b"\ndata: " + _encode(event) + b"\n\n"

    def _response(
        self, status: ResponseStatus, output: Sequence[Item] = (), usage: Usage | None = None
    ) -> ResponseObject:
        request = self._request
        choice = request.tool_choice
        return ResponseObject(
            id=self.id,
            created_at=self.created,
            completed_at=int(time.time()) if status == "completed" else None,
            status=status,
            incomplete_details=IncompleteDetails() if status == "incomplete" else None,
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            model=self.model,
            output=list(output),
            parallel_tool_calls=request.parallel_tool_calls is not False,
            reasoning=ResponseReasoning(
                effort=request.reasoning.effort if request.reasoning else None
            ),
            temperature=request.temperature,
            text=ResponseText(format=PlainText()),
            tool_choice=choice if isinstance(choice, str) else "auto",
            top_p=request.top_p,
            usage=None if usage is None else to_response_usage(usage),
            user=request.user,
            metadata=request.metadata or {},
        )


def _status_of(reason: EndReason) -> ItemStatus:
    return "completed" if reason == "stop" else "incomplete"
