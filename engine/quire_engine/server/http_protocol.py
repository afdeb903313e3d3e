"""uvicorn's HTTP connection, with bounds on what no route sees.

Heads: httptools holds a header until it is complete, and copies what it has with each piece:
without a bound, one connection takes any memory, and the event loop from everybody else. A head's
complete headers and what came without completing one are both bounded: how the network cuts a
request into pieces does not decide whether it is taken.

Readers: who reads nothing stops its answer once the socket's buffers are full; what its request
generates meanwhile is kept merged. Who goes on like that is cut off, and its request ends.

Connections: beyond a number of them, those of all API processes together, new ones are told to
come again, and closed.

What is no HTTP gets the same error body as everything else, and no line in the log: whoever can
connect could fill the disk with them.
"""

import asyncio
import logging
import sys
from http import HTTPStatus

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quire_engine.config import ServerConfig
from quire_engine.protocol.request_framing import find_fault, framing_head, in_origin_form
from quire_engine.server.count_board import CountBoard, Gauge
from quire_engine.server.errors import ApiError

MAX_HEAD_BYTES = 64 << 10
"""Names and values of a head's headers and its URL; also what may come after the piece that the
head begins in without completing it.
"""

_RETRY_SECONDS = 2.0

_log = logging.getLogger(__name__)
_log.setLevel(logging.ERROR)  # uvicorn warns of each request that it cannot parse


_HEAD_TOO_LONG = f"The request's head is longer than {MAX_HEAD_BYTES} bytes."


class _HeadTooLongError(Exception):
    """Ends the parsing of a piece."""


class _FaultError(Exception):
    """Ends it, too: the head is answered with an error."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection; its heads may take as long to come as it may stay idle between requests."""

    max_connections = ServerConfig.max_connections
    board = CountBoard.alone()
    reader_stall_seconds = ServerConfig.reader_stall_seconds
    _stall_timer: asyncio.TimerHandle | None = None
    _begins_head = False
    _num_received_bytes = 0
    _num_head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _piece = b""
    """What is being parsed."""
    _has_head = False
    """The parser is told of a head that was handed over before."""
    _fault: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        self.logger = _log
        super().connection_made(transport)
        self.board.gauge(Gauge.CONNECTIONS)[0] += 1
        if sum(self.board.gauges(Gauge.CONNECTIONS)) > self.max_connections:
            self._refuse_connection()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        self._stop_stall_timer()
        self.board.gauge(Gauge.CONNECTIONS)[0] -= 1
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads slower than it is answered: give it some time."""
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(
                self.reader_stall_seconds, self.transport.abort
            )

    def resume_writing(self) -> None:
        """It has read on."""
        self._stop_stall_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse, then refuse a head that is too long and still not complete."""
        self._begins_head = False
        self._piece = data
        super().data_received(data)
        self._piece = b""
        if self._head_timer is None or self._begins_head:
            self._num_received_bytes = 0  # not counted: how much of the piece is a body before it
            return
        self._num_received_bytes += len(data)
        if self._num_received_bytes > MAX_HEAD_BYTES:
            self.send_400_response(_HEAD_TOO_LONG)

    def on_message_begin(self) -> None:
        """Wait for the head that begins here."""
        if self._has_head:
            return
        super().on_message_begin()
        self._begins_head = True
        self._num_head_bytes = 0
        self._await_head()

    def on_url(self, url: bytes) -> None:
        """Count it in."""
        if self._has_head:
            return
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count it in."""
        if self._has_head:
            return
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise _HeadTooLongError  # the parser stops, and its error is answered below

    def on_headers_complete(self) -> None:
        """Hand the request over."""
        if self._has_head:
            return
        self._stop_timer()
        is_old = self.parser.get_http_version() == "1.0"
        self._fault = find_fault(self.headers, is_http_1_0=is_old)
        if self._fault is not None:
            raise _FaultError  # the parser stops, and its error is answered below
        if not self.url.startswith(b"/"):
            self.url = in_origin_form(self.url, self.headers) or self.url
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is complete, unless the parser gave up on its body: see below."""
        if not (self.parser.should_upgrade() and framing_head(self.headers)):
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Go on without the other protocol; called where the parser has stopped for it."""
        stopped = sys.exc_info()[1]
        if not isinstance(stopped, httptools.HttpParserUpgrade):
            raise RuntimeError("bug: no parser has stopped for another protocol")  # noqa: TRY004
        rest, head = self._piece[stopped.args[0] :], framing_head(self.headers)
        self.parser = httptools.HttpRequestParser(self)
        if head is not None:
            self._has_head = True
            self.parser.feed_data(head)
            self._has_head = False
        if rest:
            self._piece = rest
            super().data_received(rest)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and close: where the next one would begin is unknown."""
        if self._num_head_bytes > MAX_HEAD_BYTES:
            msg = _HEAD_TOO_LONG
        status, message = self._fault or (400, msg)
        line = f"{status} {HTTPStatus(status).phrase}"
        self._refuse(line, ApiError(status, message, code="invalid_http"))

    def _refuse_connection(self) -> None:
        error = ApiError(
            503,
            "The server has as many connections as it takes; try again later.",
            code="too_many_connections",
            retry_after_seconds=_RETRY_SECONDS,
        )
        self._refuse("503 Service Unavailable", error)

    def _refuse(self, status: str, error: ApiError) -> None:
        body = error.body()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **error.headers(),
        }
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join(lines) + "\r\n\r\n"
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _give_up(self) -> None:
        self._head_timer = None
        # before the first request there is no cycle, whatever its type says
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.transport.close()
        else:
            self._await_head()  # it was begun early, behind a request that is still answered

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def bound_protocol(config: ServerConfig, board: CountBoard) -> type[BoundedHttpProtocol]:
    """Return the connection's class with this server's bounds, which all its processes share."""
    shared = board

    class Protocol(BoundedHttpProtocol):
        board = shared
        max_connections = config.max_connections
        reader_stall_seconds = config.reader_stall_seconds

    return Protocol
