"""A client's connection: requests in, one answer after the other out.

Bounds: heads and bodies by bytes and by time, bodies of all connections together, requests that
were sent ahead (nothing more is read while one waits), and clients that do not read on. How long an
answer takes is not bounded here.
"""

import asyncio
from math import inf

import httptools

from quire_engine.protocol.request_framing import framing_head
from quire_gateway.errors import ApiError
from quire_gateway.http import refusals
from quire_gateway.http.framing import frame_answer
from quire_gateway.http.headers import Headers
from quire_gateway.http.request import Answering, Application, Bounds, Request, Upstream

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS = 75.0
"""Idle connections are kept longer than load balancers keep theirs (mostly 60 s)."""
BODY_SECONDS = 60.0
_FIELD_BYTES = 4  # what is between name and value, and the line's end
_LINGER_SECONDS = 1.0
"""Who is refused before all was sent has so long to read why."""


class _RefusedError(Exception):
    """Ends the parsing of a piece: an error was answered."""


class ClientConnection(asyncio.Protocol):
    """One connection.

    Parameters
    ----------
    application
        Answers a request, one at a time.
    """

    def __init__(self, application: Application, bounds: Bounds) -> None:
        self._application = application
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._headers, self._num_head_bytes = b"", list[tuple[bytes, bytes]](), 0
        self._num_fed_bytes, self._has_completed = 0, False
        """Of a head without an end yet, and whether a request was complete in the last piece."""
        self._reading: Request | None = None
        self._num_body_bytes = 0
        self._ahead: list[Request] = []
        self._request: Request | None = None
        self._is_answering = False
        self._answering: Answering | None = None
        self._is_starting = self._is_reading_paused = self._has_body_deadline = False
        self._unsent_head = b""
        self._omits_body = False
        """Whether the answer is a head alone: a body would be taken for the next answer."""
        self.due_at = self.tick = inf
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
            self._refuse(refusals.too_many_connections())
            return
        self.set_deadline(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End what was being done for this client."""
        self._transport = None
        self._bounds.connections.discard(self)
        self._bounds.deadlines.forget(self)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._release_bodies()
        if self._is_answering:
            answering = self._answering
            self.end()
            if answering is not None:
                answering.cancel()

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
        if not self._is_answering:
            self._answer_next()

    def data_received(self, data: bytes) -> None:
        """Parse."""
        rest: bytes | None = data
        while rest and not self._is_deaf:
            rest = self._parse(rest)

    def _parse(self, data: bytes) -> bytes | None:
        """Parse up to a wish for another protocol; what follows it is still to be parsed."""
        self._has_completed = False
        try:
            self._parser.feed_data(data)
        except _RefusedError:
            return None
        except httptools.HttpParserUpgrade as stopped:
            self._go_on_without_upgrade()
            return data[stopped.args[0] :]
        except httptools.HttpParserError as error:
            if not isinstance(error.__context__, _RefusedError):
                self._refuse(refusals.no_http())
            return None
        if self._reading is None:
            if not self._has_completed:
                self._num_fed_bytes += len(data)
            if self._num_fed_bytes > MAX_HEAD_BYTES:
                self._refuse(refusals.long_head(MAX_HEAD_BYTES))
        elif not self._has_body_deadline and not self._is_answering:
            self._has_body_deadline = True
            self.set_deadline(BODY_SECONDS)
        return None

    def _go_on_without_upgrade(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        if (head := framing_head(self._headers)) is not None:
            self._has_head = True
            self._parser.feed_data(head)
            self._has_head = False

    def eof_received(self) -> bool:
        """A client that only closes its sending side has left, as for every proxy."""
        return False

    # -- httptools

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._has_head:
            return
        self._target, self._headers = b"", []
        self._num_head_bytes = self._num_fed_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Keep it."""
        if self._has_head:
            return
        self._target += url
        self._num_head_bytes += len(url)
        if self._num_head_bytes > MAX_HEAD_BYTES:
            self._refuse(refusals.long_head(MAX_HEAD_BYTES))
            raise _RefusedError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep it."""
        if self._has_head:
            return
        self._num_head_bytes += len(name) + len(value) + _FIELD_BYTES
        if self._num_head_bytes > MAX_HEAD_BYTES:
            self._refuse(refusals.long_head(MAX_HEAD_BYTES))
            raise _RefusedError
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Look whether the body is wanted."""
        if self._has_head:
            return
        if self._is_deaf:
            raise _RefusedError  # sent behind a request that was the last one
        parser = self._parser
        self._reading = reading = Request(
            method=parser.get_method(),
            target=self._target,
            headers=self._headers,
            is_http_1_0=parser.get_http_version() == "1.0",
            keeps_alive=parser.should_keep_alive(),
        )
        self._num_body_bytes, self._has_body_deadline = 0, False
        headers = reading.fields
        if (fault := reading.find_fault()) is not None:
            self._refuse(fault)
            raise _RefusedError
        if not self._target.startswith(b"/"):
            reading.take_origin_form()
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._bounds.max_body_bytes:
            self._refuse_long_body()
        expects = headers.get(b"expect", b"").lower() == b"100-continue"
        if expects and not reading.is_http_1_0 and not self._is_answering:
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
            self._refuse(refusals.too_many_bodies())
            raise _RefusedError

    def on_message_complete(self) -> None:
        """Answer it, or let it wait for its turn."""
        if self._parser.should_upgrade() and framing_head(self._headers):
            return  # the parser has given up on its body: it goes on without the upgrade
        request, self._reading = self._reading, None
        if request is None:
            return
        pieces = request.pieces
        request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        request.pieces, request.num_body_bytes = [], len(request.body)
        self._num_fed_bytes, self._has_completed = 0, True
        self._ahead.append(request)
        if not self._is_answering:
            self._answer_next()
        if self._ahead and self._transport is not None and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        """Send the head of an answer.

        Parameters
        ----------
        length
            Of the body; None if it is not known yet.
        """
        request = self._request
        keeps_alive = request is not None and request.keeps_alive and not self._is_deaf
        head = frame_answer(
            request,
            status,
            headers,
            length,
            keeps_alive=keeps_alive and not self._bounds.is_leaving,
        )
        self._is_chunked = head.is_chunked
        self._is_deaf = self._is_deaf or not head.keeps_alive
        self.has_started = True
        self._unsent_head = head.text

    def write(self, data: bytes) -> None:
        """Send a piece of the body; with the first one goes the head."""
        if not data or self._omits_body:
            data = b""
        elif self._is_chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._write(data)

    def finish(self) -> None:
        """The answer is complete."""
        self._write(b"0\r\n\r\n" if self._is_chunked and not self._omits_body else b"")

    def cut(self) -> None:
        """The answer cannot be completed: the client must see that."""
        self._is_deaf, self._unsent_head = True, b""
        if self._transport is not None:
            self._transport.abort()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer."""
        self.start(status, headers, len(body))
        self.write(body)

    def respond_error(self, error: ApiError) -> None:
        """Send an error."""
        headers = [(b"content-type", b"application/json"), *error.headers()]
        self.respond(error.status, headers, error.body())

    def close_when_idle(self) -> None:
        """Close now, or after the answer that is being given.

        A request that is still coming gets one, too: its client must know whether to try again.
        """
        if not self._is_answering and self._reading is None and self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """The request was answered, or the answer cut: the next one may come."""
        if self._unsent_head:
            self._write(b"")
        request = self._request
        self._request, self._answering, self.upstream = None, None, None
        self._is_answering = self._omits_body = False
        if request is not None:
            self._bounds.num_body_bytes -= request.num_body_bytes
        if self._transport is None:
            return
        if self._is_deaf or self._bounds.is_closing:
            self._is_deaf = True
            self._transport.close()
        elif self._ahead:
            self._answer_next()
        else:
            if self._is_reading_paused:
                self._is_reading_paused = False
                self._transport.resume_reading()
            # of a request that is half there, the rest is due as of now
            self._bounds.deadlines.set(self, BODY_SECONDS if self._reading else HEAD_SECONDS)

    def set_deadline(self, seconds: float) -> None:
        """Of what is being waited for now: the answer, if one is being given."""
        self._bounds.deadlines.set(self, seconds)

    def on_due(self) -> None:
        """See `Holder`."""
        if self._is_answering:
            if self._answering is not None:
                self._answering.on_due()
        elif self._reading is not None:
            self._refuse(refusals.late_body(BODY_SECONDS))
        elif self._transport is not None:
            self._transport.close()

    def _answer_next(self) -> None:
        """Answer those that wait, as long as each is answered at once and the client reads on."""
        if self._is_starting:
            return  # called by the application from within the loop below
        self._is_starting = True
        while self._ahead and not self._is_answering and not self.is_paused:
            request = self._request = self._ahead.pop(0)
            self._omits_body = request.method == b"HEAD"
            self._is_answering, self.has_started, self.due_at = True, False, inf
            try:
                answering = self._application(self, request)
            except Exception as error:  # noqa: BLE001 - one request must not end all others
                self.fail(error)
                break
            if self._is_answering:
                self._answering = answering
            elif self._is_deaf:
                break
        self._is_starting = False

    def fail(self, error: Exception) -> None:
        """Answering failed for a reason that nobody thought of."""
        context = {"message": "a request failed unexpectedly", "exception": error}
        self._loop.call_exception_handler(context)
        self.cut()
        self.end()

    def _write(self, data: bytes) -> None:
        if self._unsent_head:
            data, self._unsent_head = self._unsent_head + data, b""
        if data and self._transport is not None:
            self._transport.write(data)

    def _refuse_long_body(self) -> None:
        self._refuse(refusals.long_body(self._bounds.max_body_bytes))
        raise _RefusedError

    def _refuse(self, error: ApiError) -> None:
        """Answer what is no request that can be taken, and end the connection."""
        is_behind_last, self._is_deaf = self._is_answering or self._is_deaf, True
        self._release_reading()
        if is_behind_last:
            return  # of an answer that is given, or was: the connection ends after it
        self.respond_error(error)
        self.set_deadline(_LINGER_SECONDS)

    def _release_reading(self) -> None:
        if self._reading is not None:
            self._bounds.num_body_bytes -= sum(map(len, self._reading.pieces))
            self._reading = None

    def _release_bodies(self) -> None:
        self._release_reading()
        self._bounds.num_body_bytes -= sum(request.num_body_bytes for request in self._ahead)
        self._ahead = []
