"""An engine's answer on its way to the client.

Until the first byte of the body has come, nothing has gone out: whatever goes wrong before can be
tried elsewhere. After that, a stream that breaks off ends with an error event, at the border of
events; anything else is cut, so that the client cannot take it for complete.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from quire_engine.protocol.token_usage import USAGE_HEADER, TokenUsage, read_usage, take_usage
from quire_gateway.errors import ApiError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.headers import Headers, find, to_client
from quire_gateway.http.request import Request
from quire_gateway.http.sse import EventBorder

_REFUSALS = frozenset({429, 503})
_NOT_FOR_CLIENTS = frozenset({401, 403, 407})
"""The engine does not take the gateway for one: nothing that a client could do about."""
_MAX_REFUSAL_BYTES = 64 << 10
_LOST = ApiError(500, "The engine failed before this answer was complete.", reason="engine_lost")
_SHUT_DOWN = ApiError(
    503, "The gateway was shut down before this answer was complete.", reason="shutting_down"
)


@dataclass(slots=True)
class Outcome:
    """How an attempt ended."""

    kind: Literal["done", "refused", "failed", "broken"]
    """refused and failed: nothing has gone out; broken: the client has been told."""
    status: int = 0
    reason: str = ""
    retry_after_seconds: float = 1.0
    is_nobodys_fault: bool = False
    """The engine closed a kept connection as the request was sent."""
    usage: TokenUsage | None = None
    """Tokens that it took, if the engine said so."""

    @property
    def is_over(self) -> bool:
        """Whether the client has all that it will get."""
        return self.kind in ("done", "broken")


class Relay:
    """Receives one answer.

    Parameters
    ----------
    settle
        Told once how it ended.
    clock
        Seconds of the event loop.
    """

    __slots__ = (
        "_border",
        "_client",
        "_clock",
        "_error",
        "_has_begun",
        "_headers",
        "_is_settled",
        "_length",
        "_path",
        "_refusal",
        "_request",
        "_request_id",
        "_settle_with",
        "_status",
        "_usage",
        "first_byte_at",
    )

    def __init__(
        self,
        client: ClientConnection,
        request: Request,
        path: str,
        request_id: bytes,
        *,
        settle: Callable[[Outcome], None],
        clock: Callable[[], float],
    ) -> None:
        self.first_byte_at: float | None = None
        self._client = client
        self._request = request
        self._path = path
        self._request_id = request_id
        self._settle_with = settle
        self._clock = clock
        self._status = 0
        self._headers: Headers = []
        self._refusal: bytearray | None = None
        self._border: EventBorder | None = None
        self._usage: TokenUsage | None = None
        self._error: bytearray | None = None
        """An engine's error for a client whose stream has begun: it becomes an event."""
        self._length: int | None = None
        self._has_begun = self._is_settled = False

    def on_head(self, status: int, headers: Headers) -> None:
        """See `AnswerReceiver`."""
        self._status, self._headers = status, headers
        if status in _REFUSALS:
            self._refusal = bytearray()

    def on_body(self, data: bytes) -> None:
        """See `AnswerReceiver`."""
        if self._refusal is not None:
            self._refusal += data[: _MAX_REFUSAL_BYTES - len(self._refusal)]
            return
        if self._status in _NOT_FOR_CLIENTS or self._is_settled:
            return
        if not self._has_begun:
            self._begin()
        if self._error is not None:
            self._error += data[: _MAX_REFUSAL_BYTES - len(self._error)]
        elif self._border is None:
            self._client.write(data)
        else:
            self._pass_on(self._border.whole(data))

    def on_end(self) -> None:
        """See `AnswerReceiver`."""
        if self._is_settled:
            return
        if self._refusal is not None:
            text = find(self._headers, b"retry-after") or b""
            seconds = float(text) if text.isdigit() and len(text) < 6 else 1.0
            usage = read_usage(find(self._headers, USAGE_HEADER))
            self._settle(Outcome("refused", self._status, "refused", seconds, usage=usage))
            return
        if self._status in _NOT_FOR_CLIENTS:
            self._settle(Outcome("failed", self._status, "unauthorized"))
            return
        self._client.upstream = None  # the connection may go to another request at once
        if not self._has_begun:
            self._begin()
        if self._error is not None:
            self._client.write(events_of(self._path, bytes(self._error)))
        elif self._border is not None:
            self._pass_on(self._border.rest())
        self._client.finish()
        self._settle(Outcome("done", self._status, usage=self._usage))

    def on_failure(self, reason: str, *, was_reused: bool) -> None:
        """See `AnswerReceiver`."""
        if self._is_settled:
            return
        if not self._has_begun:
            self._settle(Outcome("failed", 0, reason, is_nobodys_fault=was_reused))
            return
        if self._border is not None and self._length is None:
            error = _SHUT_DOWN if reason == "shutdown" else _LOST
            self._client.write(error_events(self._path, error))
            self._client.finish()
        else:
            self._client.cut()
        self._settle(Outcome("broken", self._status, reason))

    def _begin(self) -> None:
        self._has_begun = True
        self.first_byte_at = self._clock()
        self._request.body = b""  # it is not sent again
        fields = dict(self._headers)
        if USAGE_HEADER in fields:
            self._usage = read_usage(fields[USAGE_HEADER])
        is_stream = fields.get(b"content-type", b"").startswith(b"text/event-stream")
        if is_stream:
            self._border = EventBorder()
        if self._client.has_started:  # with comments, while it waited
            self._error = None if is_stream and self._status == 200 else bytearray()
            return
        headers = to_client(self._headers)
        headers.append((b"x-request-id", self._request_id))
        length = fields.get(b"content-length")
        self._length = int(length) if length is not None and length.isdigit() else None
        self._client.start(self._status, headers, self._length)

    def _pass_on(self, events: bytes) -> None:
        events, usage = take_usage(events)
        if usage is not None:
            self._usage = usage
        self._client.write(events)

    def _settle(self, outcome: Outcome) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settle_with(outcome)


def error_events(path: str, error: ApiError) -> bytes:
    """Return how a stream of this route says that it broke off."""
    return events_of(path, error.body())


def events_of(path: str, body: bytes) -> bytes:
    """Make of an error's body the last events of a stream."""
    if path != "/v1/responses":
        return b"data: %b\n\ndata: [DONE]\n\n" % body.replace(b"\n", b" ")
    try:
        detail = msgspec.json.decode(body)["error"]
        event = {"type": "error"} | {name: detail[name] for name in ("code", "message", "param")}
    except (msgspec.MsgspecError, KeyError, TypeError):
        event = {"type": "error", "code": "engine_error", "message": "It failed.", "param": None}
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(event)
