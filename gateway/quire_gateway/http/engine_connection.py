"""A connection to an engine: one request at a time, its answer told to a receiver as it comes.

Whatever an engine sends that is no answer to the request ends the connection: garbage, endless
heads, bytes that nobody asked for.
"""

import asyncio
from typing import Protocol

import httptools

from quire_gateway.http.headers import Headers

MAX_HEAD_BYTES = 64 << 10
MAX_JOINED_BYTES = 64 << 10
"""Shorter bodies are copied behind their heads: one call of the system."""


class AnswerReceiver(Protocol):
    """Who is told of an answer."""

    def on_head(self, status: int, headers: Headers) -> None:
        """The head is there."""

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""

    def on_end(self) -> None:
        """The answer is complete; the connection is free again."""

    def on_failure(self, reason: str, *, was_reused: bool) -> None:
        """There will be no answer, or no more of it.

        Parameters
        ----------
        was_reused
            Whether not a byte came on a connection that had been kept: its engine may just have
            closed it, which is nobody's fault.
        """


class _GarbageError(Exception):
    """Ends the parsing of a piece."""


class EngineConnection(asyncio.Protocol):
    """One connection; made by a pool.

    Parameters
    ----------
    on_free, on_lost
        Told when the next request may be sent, and when there will be none.
    """

    def __init__(self, pool: "ConnectionOwner") -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._receiver: AnswerReceiver | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: Headers = []
        self._body: list[bytes] = []
        self._num_head_bytes = 0
        self._num_received = 0
        self._num_answers = 0
        self._keeps_alive = False
        self._has_head = False
        self._has_ended = False
        self.idle_since = 0.0

    @property
    def is_closing(self) -> bool:
        """Whether it cannot be used any more."""
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell the receiver, if it still waits for something."""
        self._pool.on_lost(self)
        self._fail("closed")
        self._transport = None

    def send(self, head: bytes, body: bytes, receiver: AnswerReceiver) -> None:
        """Send a request; what the engine does not read at once is held until it does."""
        self._receiver = receiver
        if self._parser is None:  # else that of the last answer, which was complete
            self._parser = httptools.HttpResponseParser(self)
        self._headers, self._num_head_bytes, self._num_received = [], 0, 0
        self._has_head = self._has_ended = False
        if self._transport is None:
            self._fail("closed")
            return
        if len(body) < MAX_JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def abort(self) -> None:
        """Close at once, and tell nobody; the engine gives up what it was asked for."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def abandon(self, receiver: AnswerReceiver) -> None:
        """Close if it still works for this receiver; it may have gone to another one."""
        if self._receiver is receiver:
            self.abort()

    def pause_reading(self) -> None:
        """Take no more of the answer for now."""
        if self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take more of it."""
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Parse, then hand over what came: of a piece with garbage in it, nothing is passed on."""
        if self._parser is None or self._receiver is None:
            self.abort()  # nobody asked
            return
        self._num_received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _GarbageError):
            self._fail("garbage")
            self.abort()
            return
        if not self._has_head and self._num_received > MAX_HEAD_BYTES:
            self._fail("garbage")
            self.abort()
            return
        self._hand_over()

    def on_message_begin(self) -> None:
        """Refuse a second answer."""
        if self._has_ended:
            raise _GarbageError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep it."""
        self._num_head_bytes += len(name) + len(value)
        if self._num_head_bytes > MAX_HEAD_BYTES or self._has_head:
            raise _GarbageError
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Ask now whether the connection stays: after the message the parser has forgotten."""
        parser = self._parser
        if parser is None or not 200 <= parser.get_status_code() <= 599:
            raise _GarbageError
        self._keeps_alive = parser.should_keep_alive()
        self._has_head = True
        if self._receiver is not None:
            self._receiver.on_head(parser.get_status_code(), self._headers)

    def on_body(self, body: bytes) -> None:
        """Collect what one read brings: it is passed on as one piece."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Nothing more is to come."""
        self._has_ended = True

    def _hand_over(self) -> None:
        receiver, pieces = self._receiver, self._body
        if pieces and receiver is not None:
            self._body = []
            receiver.on_body(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if not self._has_ended or self._receiver is None:
            return
        self._receiver = None
        self._num_answers += 1
        if self._keeps_alive and self._transport is not None:
            self.resume_reading()
            self._pool.on_free(self)
        elif self._transport is not None:
            self._transport.close()
        if receiver is not None:
            receiver.on_end()

    def _fail(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        self._body = []
        if receiver is not None:
            was_reused = self._num_answers > 0 and self._num_received == 0
            receiver.on_failure(reason, was_reused=was_reused)


class ConnectionOwner(Protocol):
    """Who keeps connections."""

    def on_free(self, connection: EngineConnection) -> None:
        """The next request may be sent."""

    def on_lost(self, connection: EngineConnection) -> None:
        """There will be none."""
