"""One request on its way: a way to an engine, the answer from there to the client.

claim ──► way ──► attempt ──► done, or broken after the first byte
  ▲                  │
  └──────────────────┴── refused or failed before it: another way, or a wait for one
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from quire_gateway.choosing.text_chunks import name_chunks, write_names
from quire_gateway.errors import ApiError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.engine_connection import EngineConnection
from quire_gateway.http.headers import to_engine, write_fields
from quire_gateway.http.pool import NO_FILES
from quire_gateway.http.request import Request
from quire_gateway.routing.document import ApiKey, RoutingDocument
from quire_gateway.serving.claim import Claim
from quire_gateway.serving.directory import Served
from quire_gateway.serving.inquiry import Inquiry, is_retry
from quire_gateway.serving.keep_awake import KeepAwake
from quire_gateway.serving.link import Way
from quire_gateway.serving.record import Record
from quire_gateway.serving.relay import Outcome, Relay
from quire_gateway.serving.wish import Wish

_HEAD = (
    b"POST %b HTTP/1.1\r\n%b%bcontent-length: %d\r\nx-request-id: %b\r\nx-quire-priority: %b\r\n"
    b"x-quire-admit: %b\r\nx-quire-gateway: %b;%d\r\n%b\r\n"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all requests share.

    Parameters
    ----------
    claim
        Makes a request's claim, of its service, key, wish, and who is told of a way.
    clock
        Seconds of the event loop.
    end
        Called once for each request that has ended, with the error to be answered, or None.
    """

    loop: asyncio.AbstractEventLoop
    claim: Callable[..., Claim]
    request_timeout_seconds: float
    clock: Callable[[], float]
    end: Callable[[ClientConnection, Record, ApiError | None], None]


class Exchange:
    """One request for a model; `Answering` for its client's connection."""

    __slots__ = (
        "_around",
        "_awake",
        "_claim",
        "_client",
        "_connecting",
        "_connection",
        "_ends_at",
        "_inquiry",
        "_key",
        "_record",
        "_relay",
        "_request",
        "_service",
        "_way",
        "_wish",
    )

    def __init__(
        self,
        client: ClientConnection,
        request: Request,
        inquiry: Inquiry,
        service: Served,
        key: ApiKey,
        record: Record,
        around: Surroundings,
    ) -> None:
        self._client = client
        self._request = request
        self._inquiry = inquiry
        self._service = service
        self._key = key
        self._record = record
        self._around = around
        self._ends_at = inf
        self._way: Way | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connection: EngineConnection | None = None
        self._relay: Relay | None = None
        self._awake: KeepAwake | None = None
        self._wish = _make_wish(
            inquiry, service.document, key, record.started_at, is_retry=is_retry(request)
        )
        self._claim = around.claim(service, key, self._wish, self._take)

    def start(self) -> None:
        """Begin; the answer comes now or later.

        Raises
        ------
        ApiError
            There is no engine for it, or its key's limits do not allow it.
        """
        way = self._claim.open()
        try:
            self._go(way)
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def cancel(self) -> None:
        """See `Answering`."""
        self._wait_no_more()
        was_sent = self._relay is not None
        self._leave_engine()
        self._claim.cancel(was_sent=was_sent)
        self._record.status, self._record.reason = 0, "client_left"
        self._around.end(self._client, self._record, None)

    def on_due(self) -> None:
        """See `Answering`: the engine has taken too long, to begin or to end."""
        if self._relay is None:
            return
        seconds = self._ends_at - self._around.clock()
        if self._relay.first_byte_at is not None and seconds > 0.0:
            self._client.set_deadline(seconds)
        else:
            self._relay.on_failure("timeout", was_reused=False)

    def _take(self, answer: Way | Exception) -> None:
        """Take what came for who waited."""
        self._wait_no_more()
        if isinstance(answer, Exception):
            self._fail(answer)
            return
        try:
            self._go(answer)
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def _keep_awake(self) -> None:
        """A stream that waits for a first engine gets comments."""
        service = self._service
        if self._inquiry.is_stream and not service.has_eligible():
            self._awake = KeepAwake(
                self._client, self._record.request_id, lambda: not service.has_eligible()
            )

    def _wait_no_more(self) -> None:
        if self._awake is not None:
            self._awake.stop()
            self._awake = None

    def _fail(self, error: Exception) -> None:
        """End with an error: there is no caller that would take it."""
        if isinstance(error, ApiError):
            self._around.end(self._client, self._record, error)
        else:
            was_sent = self._relay is not None
            self._leave_engine()
            self._claim.cancel(was_sent=was_sent)
            self._client.fail(error)

    def _go(self, way: Way | None) -> None:
        """Send the request that way, or wait for one."""
        if way is None:
            self._keep_awake()
            return
        self._way = way
        connection = way.link.pool.take_idle()
        if connection is not None:
            self._send(way, connection)
            return
        self._connecting = self._around.loop.create_task(way.link.pool.open(self._opened))

    def _opened(self, connection: EngineConnection | str) -> None:
        self._connecting = None
        if isinstance(connection, str):
            is_own_fault = connection == NO_FILES
            self._settle(Outcome("failed", reason=connection, is_nobodys_fault=is_own_fault))
            return
        try:
            if self._way is None:
                connection.abort()
            else:
                self._send(self._way, connection)
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def _send(self, way: Way, connection: EngineConnection) -> None:
        client, around = self._client, self._around
        relay = self._relay = Relay(
            client,
            self._request,
            self._inquiry.path,
            self._record.request_id,
            settle=self._settle,
            clock=around.clock,
        )
        way.link.relays.add(relay)
        self._connection = client.upstream = connection
        if client.is_paused:
            connection.pause_reading()
        self._ends_at = around.clock() + around.request_timeout_seconds
        client.set_deadline(min(way.first_byte_seconds, around.request_timeout_seconds))
        connection.send(self._head(way), self._request.body, relay)

    def _settle(self, outcome: Outcome) -> None:
        """The attempt has ended: that was it, or another engine is tried."""
        way, relay = self._way, self._relay
        if way is None:
            return
        first_byte_at = None if relay is None else relay.first_byte_at
        self._leave_engine()
        try:
            self._note(way, outcome, first_byte_at)
            next_way = self._claim.settle(outcome, first_byte_at)
            if outcome.is_over:
                self._around.end(self._client, self._record, None)
            else:
                self._go(next_way)
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def _leave_engine(self) -> None:
        """Free what the attempt holds."""
        way, relay, connection = self._way, self._relay, self._connection
        self._way = self._relay = self._connection = None
        self._client.upstream = None
        self._client.due_at = inf
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if relay is None:
            return
        if way is not None:
            way.link.relays.discard(relay)
        if connection is not None:
            # if the client has left, or the engine hangs: the engine frees what it held
            connection.abandon(relay)

    def _note(self, way: Way, outcome: Outcome, first_byte_at: float | None) -> None:
        record = self._record
        record.endpoint, record.status = way.link.address, outcome.status
        record.num_attempts += 1
        record.first_byte_at = first_byte_at
        if outcome.status < 400:
            record.usage = outcome.usage
        if outcome.kind == "broken":
            record.reason = outcome.reason

    def _head(self, way: Way) -> bytes:
        """The head that the engine gets; of `x-quire-*` only what the gateway says itself."""
        headers, wish = list(self._record.trace.headers), self._wish
        deadline = wish.own_deadline if way.is_unpromised else wish.deadline
        if deadline is not None:
            milliseconds = max(int(1000 * (deadline - self._around.clock())), 1)
            headers.append((b"x-quire-deadline-ms", b"%d" % milliseconds))
        if wish.chunks:
            headers.append((b"x-quire-prefix", write_names(wish.chunks)))
        if self._key.salt:
            headers.append((b"x-quire-salt", self._key.salt.encode()))
        return _HEAD % (
            self._inquiry.path.encode(),
            way.link.fields,
            write_fields(to_engine(self._request.headers)),
            len(self._request.body),
            self._record.request_id,
            b"background" if wish.is_background else b"interactive",
            b"wait" if way.holds_room else b"now",
            way.gateway,
            way.counter,
            write_fields(headers),
        )


def _make_wish(
    inquiry: Inquiry, document: RoutingDocument, key: ApiKey, arrived_at: float, *, is_retry: bool
) -> Wish:
    """Return what a request wants, with what its service and its key make of it."""
    is_background = inquiry.is_background
    if is_background is None:
        is_background = document.default_priority == "background"
    is_background = is_background or key.max_priority == "background"
    asked = seconds = inquiry.deadline_seconds
    promised = document.thresholds.slo_time_to_first_token_seconds
    if promised is not None and not is_background:
        seconds = promised if seconds is None else min(seconds, promised)
    return Wish(
        arrived_at,
        inquiry.num_prompt_tokens,
        inquiry.max_tokens,
        inquiry.num_sequences,
        is_background,
        None if seconds is None else arrived_at + seconds,
        None if asked is None else arrived_at + asked,
        inquiry.is_stream,
        is_retry,
        name_chunks(inquiry.prompt_parts, key.salt),
    )
