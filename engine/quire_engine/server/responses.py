"""Responses in bytes: a view over the pieces that chat completions are made of.

    response.created, response.in_progress
        for a reasoning, then for a message and for calls, as they come:
        output_item.added, content_part.added, deltas, their done, content_part.done,
        output_item.done (a call has no content parts)
    response.completed, or response.incomplete; at any point response.failed

Every event has its number. There is no [DONE]: the last event says that it is the last. A whole
response is what the last event of a stream would have.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from quire_engine.server.answers import AnswerFormat, WholeAnswer
from quire_engine.server.errors import ApiError
from quire_engine.server.response_items import (
    Event,
    OpenCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
)
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.logprobs import StopReason
from quire_engine.server.schemas.response_objects import (
    EventType,
    IncompleteDetails,
    ItemStatus,
    OutputItem,
    ResponseFailure,
    ResponseObject,
    ResponseReasoning,
    ResponseStatus,
    ResponseStreamEvent,
    ResponseText,
    to_response_usage,
)
from quire_engine.server.schemas.responses import ResponsesRequest, TextFormat
from quire_engine.server.schemas.usage import EndReason, Usage
from quire_engine.server.text_maker import Piece
from quire_engine.server.tools.answer import is_cut
from quire_engine.server.tools.events import CallArguments, CallBegin, Content, ToolEvent
from quire_engine.server.tools.ids import make_call_id
from quire_engine.server.tools.use import ToolUse

_encode = msgspec.json.Encoder().encode


class ResponsesAnswer(AnswerFormat):
    """The answer of `/v1/responses`.

    Parameters
    ----------
    request
        As it came.
    chat
        The chat request that it stands for.
    use
        How it may call tools; None if it is text.
    """

    def __init__(
        self, request: ResponsesRequest, chat: ChatRequest, use: ToolUse | None = None
    ) -> None:
        super().__init__(chat, None, "resp")
        self.id = f"resp_{uuid.uuid4().hex}"
        self._request = request
        self._num_events = 0
        self._use = use
        self._parser = use.make_parser() if use else None
        self._open: OpenItem | None = None
        self._output: list[OutputItem] = []
        self._status: ResponseStatus = "completed"

    def first_event(self, index: int) -> bytes:  # noqa: ARG002 - there is one answer
        """That it has begun."""
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def shows(self, piece: Piece) -> bool:
        """Whether there is something in a piece that the client may get to see."""
        return bool(piece.text or piece.reasoning)

    def text_event(
        self,
        index: int,  # noqa: ARG002
        piece: Piece,
        usage: Usage | None = None,  # noqa: ARG002 - only the end has counts
    ) -> bytes:
        """A piece of the reasoning, of the message, of calls, or of several."""
        return self._write(piece, self._parse(piece.text))

    def finish_event(
        self,
        index: int,  # noqa: ARG002
        piece: Piece,
        finish_reason: EndReason,
        stop_reason: StopReason,
        usage: Usage | None = None,  # noqa: ARG002
    ) -> bytes:
        """The last piece, and the end of its item: without any text that of an empty message."""
        found = self._parse(piece.text)
        status: ItemStatus = "incomplete" if finish_reason == "length" else "completed"
        self._status = status
        if self._parser is not None:
            found += self._parser.finish()
            if is_cut(finish_reason, stop_reason, self._parser):
                status = "incomplete"
        events = self._write(piece, found)
        if self._open is None and not self._output:
            events += self._begin(OpenMessage)
        return events + self._close_item(status)

    def usage_event(self, usage: Usage) -> bytes:
        """The whole response, with its token counts."""
        response = self._response(self._status, self._output, usage)
        is_whole = self._status == "completed"
        return self._event(
            "response.completed" if is_whole else "response.incomplete", response=response
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
        piece = Piece(answer.text, reasoning=answer.reasoning)
        self.finish_event(0, piece, answer.finish_reason, answer.stop_reason)
        return _encode(self._response(self._status, self._output, usage))

    def _text_chunk(
        self,
        index: int,  # noqa: ARG002
        piece: Piece,  # noqa: ARG002
        usage: object,  # noqa: ARG002
    ) -> msgspec.Struct:
        raise RuntimeError("bug: a piece of a response is several events, and no chunk")

    def _parse(self, text: str) -> list[ToolEvent]:
        """What a piece of text makes sure."""
        if self._parser is not None:
            return self._parser.push(text)
        return [Content(text)] if text else []

    def _write(self, piece: Piece, found: Sequence[ToolEvent]) -> bytes:
        events = self._add(OpenReasoning, piece.reasoning) if piece.reasoning else b""
        for event in found:
            match event:
                case Content(text):
                    events += self._add(OpenMessage, text)
                case CallBegin(name):
                    events += self._begin(OpenCall, name, self._new_call_id())
                case CallArguments(text):
                    events += self._add(OpenCall, text)
        return events

    def _add(self, kind: type[OpenItem], text: str) -> bytes:
        """Add to the open item, or to a new one if that is of another kind."""
        events = b"" if isinstance(self._open, kind) else self._begin(kind)
        if self._open is None:
            raise RuntimeError("bug: there is no item to add a text to")
        name, fields = self._open.delta(text)
        return events + self._event(name, **fields)

    def _begin(self, kind: type[OpenItem], *about: str) -> bytes:
        """Open an item; closes the one before."""
        events = self._close_item("completed")
        self._open = kind(len(self._output), *about)
        return events + self._send(self._open.open())

    def _close_item(self, status: ItemStatus) -> bytes:
        """Close the open item, if there is one."""
        closed, self._open = self._open, None
        if closed is None:
            return b""
        self._output.append(closed.item(status))
        return self._send(closed.close(status))

    def _new_call_id(self) -> str:
        return make_call_id(is_short=bool(self._use and self._use.tool_format.has_short_ids))

    def _send(self, events: Iterable[Event]) -> bytes:
        return b"".join(self._event(name, **fields) for name, fields in events)

    def _event(self, kind: EventType, **fields: Any) -> bytes:  # noqa: ANN401 - fields of many types
        event = ResponseStreamEvent(type=kind, sequence_number=self._num_events, **fields)
        self._num_events += 1
        return b"event: " + kind.encode() + b"\ndata: " + _encode(event) + b"\n\n"

    def _response(
        self, status: ResponseStatus, output: Sequence[OutputItem] = (), usage: Usage | None = None
    ) -> ResponseObject:
        request = self._request
        form = request.text.format if request.text else None
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
            text=ResponseText(format=form or TextFormat(type="text")),
            tool_choice=request.tool_choice or "auto",
            tools=request.tools or [],
            top_p=request.top_p,
            usage=None if usage is None else to_response_usage(usage),
            user=request.user,
            metadata=request.metadata or {},
        )
