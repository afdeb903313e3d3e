"""A client's connection: requests in, one answer after the other out.

Bounds: heads and bodies by bytes and by time, bodies of all connections together, requests that
were sent ahead (nothing more is read while one waits), and clients that do not read on. How long an
answer takes is not bounded here.
"""

import asyncio
from collections.abc import Callable, Coroutine

import httptools

from quire_engine.protocol.request_framing import framing_head
from quire_gateway.errors import REASONS, ApiError
from quire_gateway.http.headers import Headers, write_head
from quire_gateway.http.request import Bounds, Request, Upstream

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS = 75.0
"""Idle connections are kept longer than load balancers keep theirs (mostly 60 s)."""
BODY_SECONDS = 60.0
_LINGER_SECONDS = 1.0
"""Who is refused before all was sent has so long to read why."""


Application = Callable[["ClientConnection", Request], Coroutine[None, None, None]]


class _RefusedError(Exception):
    """Ends the parsing of a piece: an error was answered."""


class ClientConnection(asyncio.Protocol):
    """One connection.

    Parameters
    ----------
    application
        Answers a request; cancelled when the client leaves.
    """

    def __init__(self, application: Application, bounds: Bounds) -> None:
        self._application = application
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._headers, self._num_head_bytes = b"", list[tuple[bytes, bytes]](), 0
        self._reading: Request | None = None
        self._num_body_bytes = 0
        self._ahead: list[Request] = []
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._is_chunked = False
        self._has_head = False
        """The parser is told of a head that was taken before."""
        self._is_deaf = False
        """What comes is not read any more: the connection ends after this answer."""
        self.has_started = False
        """Whether the answer's head has gone out."""
        self.is_paused = False
        """Whether the client reads slower than it is answered."""
        self.upstream: Upstream | None = None

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport  # type: ignore[assignment]
        self._bounds.connections.add(self)
        if len(self._bounds.connections) > self._bounds.max_connections:
            message = "The gateway has as many connections as it takes; try again later."
            self._refuse(
                ApiError(503, message, reason="too_many_connections", retry_after_seconds=2.0)
            )
            return
        self._set_timer(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End what was being done for this client."""
        self._transport = None
        self._bounds.connections.discard(self)
        self._cancel_timers()
        self._release_bodies()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Take no more from upstream, and wait for the client for a while."""
        self.is_paused = True
        if self.upstream is not None:
            self.upstream.pause_reading()
        if self._transport is not None and self._stall_timer is None:
            self._stall_timer = self._loop.call_later(
                self._bounds.reader_stall_seconds, self._transport.abort
            )

    def resume_writing(self) -> None:
        """Go on."""
        self.is_paused = False
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self.upstream is not None:
            self.upstream.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Parse."""
        if self._is_deaf:
            return
        try:
            self._parser.feed_data(data)
        except _RefusedError:
            return
        except httptools.HttpParserUpgrade as stopped:
            self._go_on_without_upgrade(data[stopped.args[0] :])
            return
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _RefusedError):
                return
            message = "This is not HTTP, or not HTTP that is understood here."
            self._refuse(ApiError(400, message, reason="invalid_http"))
            return
        if self._reading is None and self._task is None:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                self._refuse_long_head()

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        head = framing_head(self._headers)
        if head is not None:
            self._has_head = True
            self._parser.feed_data(head)
            self._has_head = False
        if rest:
            self.data_received(rest)

    def eof_received(self) -> bool:
        """A client that only closes its sending side has left, as for every proxy."""
        return False

    # -- httptools

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._has_head:
            return
        self._target, self._headers, self._num_head_bytes = b"", [], 0

    def on_url(self, url: bytes) -> None:
        """Keep it."""
        if self._has_head:
            return
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep it."""
        if self._has_head:
            return
        self._count_head(len(name) + len(value))
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Look whether the body is wanted."""
        if self._has_head:
            return
        parser = self._parser
        self._reading = Request(
            method=parser.get_method(),
            target=self._target,
            headers=self._headers,
            is_http_1_0=parser.get_http_version() == "1.0",
            keeps_alive=parser.should_keep_alive(),
        )
        self._num_body_bytes = 0
        if self._task is None:
            self._set_timer(BODY_SECONDS)
        headers = dict(self._headers)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._bounds.max_body_bytes:
            self._refuse_long_body()
        if headers.get(b"expect", b"").lower() == b"100-continue" and self._task is None:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Keep it, within bounds."""
        if self._reading is None:
            return
        self._num_body_bytes += len(body)
        self._bounds.num_body_bytes += len(body)
        self._reading.pieces.append(body)
        if self._num_body_bytes > self._bounds.max_body_bytes:
            self._refuse_long_body()
        if self._bounds.num_body_bytes > self._bounds.max_total_body_bytes:
            message = "The gateway holds as many requests as it can; try again later."
            self._refuse(ApiError(503, message, reason="overloaded", retry_after_seconds=2.0))
            raise _RefusedError

    def on_message_complete(self) -> None:
        """Answer it, or let it wait for its turn."""
        if self._parser.should_upgrade() and framing_head(self._headers):
            return  # the parser has given up on its body: it goes on without the upgrade
        request, self._reading = self._reading, None
        if request is None:
            return
        request.body = b"".join(request.pieces)
        request.pieces, request.num_body_bytes = [], len(request.body)
        self._num_head_bytes = 0
        self._ahead.append(request)
        if self._task is None:
            self._answer_next()
        elif self._transport is not None:
            self._transport.pause_reading()

    # -- answers

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        """Send the head of an answer.

        Parameters
        ----------
        length
            Of the body; None if it is not known yet.
        """
        request = self._request
        keeps_alive = request is not None and request.keeps_alive and not self._is_deaf
        keeps_alive = keeps_alive and not self._bounds.is_closing
        own: Headers = []
        self._is_chunked = False
        if length is not None:
            own.append((b"content-length", b"%d" % length))
        elif request is not None and request.is_http_1_0:
            keeps_alive = False
        else:
            self._is_chunked = True
            own.append((b"transfer-encoding", b"chunked"))
        if not keeps_alive:
            self._is_deaf = True
            own.append((b"connection", b"close"))
        elif request is not None and request.is_http_1_0:
            own.append((b"connection", b"keep-alive"))
        line = b"HTTP/1.1 %d %b" % (status, REASONS.get(status, "Unknown").encode())
        self.has_started = True
        self._write(write_head(line, [*headers, *own]))

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if not data or self._omits_body:
            return
        self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def finish(self) -> None:
        """The answer is complete."""
        if self._is_chunked and not self._omits_body:
            self._write(b"0\r\n\r\n")

    def cut(self) -> None:
        """The answer cannot be completed: the client must see that."""
        self._is_deaf = True
        if self._transport is not None:
            self._transport.abort()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer."""
        self.start(status, headers, len(body))
        if not self._omits_body:
            self._write(body)

    def respond_error(self, error: ApiError) -> None:
        """Send an error."""
        headers = [(b"content-type", b"application/json"), *error.headers()]
        self.respond(error.status, headers, error.body())

    def close_when_idle(self) -> None:
        """Close now, or after the answer that is being given.

        A request that is still coming gets one, too: its client must know whether to try again.
        """
        if self._task is None and self._reading is None and self._transport is not None:
            self._transport.close()

    # -- inside

    @property
    def _omits_body(self) -> bool:
        """Whether the answer is a head alone: a body would be taken for the next answer."""
        return self._request is not None and self._request.method == b"HEAD"

    def _answer_next(self) -> None:
        self._set_timer(None)
        self._request = self._ahead.pop(0)
        self.has_started = False
        self._task = self._loop.create_task(self._application(self, self._request))
        self._task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        request, self._request, self._task, self.upstream = self._request, None, None, None
        if request is not None:
            self._bounds.num_body_bytes -= request.num_body_bytes
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a request failed unexpectedly", "exception": error}
            self._loop.call_exception_handler(context)
            self.cut()
        if self._transport is None:
            return
        if self._is_deaf or self._bounds.is_closing:
            self._transport.close()
        elif self._ahead:
            self._answer_next()
        else:
            self._transport.resume_reading()
            self._set_timer(HEAD_SECONDS)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            self._refuse_long_head()
            raise _RefusedError

    def _refuse_long_head(self) -> None:
        message = f"The request's head is longer than {MAX_HEAD_BYTES} bytes."
        self._refuse(ApiError(431, message, reason="head_too_large"))

    def _refuse_long_body(self) -> None:
        message = f"The body is larger than {self._bounds.max_body_bytes} bytes; send less."
        self._refuse(ApiError(413, message, reason="body_too_large"))
        raise _RefusedError

    def _refuse(self, error: ApiError) -> None:
        """Answer what is no request that can be taken, and end the connection."""
        self._is_deaf = True
        self._release_reading()
        if self._task is not None:
            return  # behind an answer that is being given: the connection ends after it
        self._set_timer(None)
        self.respond_error(error)
        if self._transport is not None:
            self._timer = self._loop.call_later(_LINGER_SECONDS, self._transport.close)

    def _release_reading(self) -> None:
        if self._reading is not None:
            self._bounds.num_body_bytes -= sum(map(len, self._reading.pieces))
            self._reading = None

    def _release_bodies(self) -> None:
        self._release_reading()
        self._bounds.num_body_bytes -= sum(request.num_body_bytes for request in self._ahead)
        self._ahead = []

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self._reading is not None:
            message = f"The body did not come within {BODY_SECONDS:g} seconds."
            self._refuse(ApiError(408, message, reason="timeout"))
        elif self._transport is not None:
            self._transport.close()

    def _cancel_timers(self) -> None:
        self._set_timer(None)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
