"""One request on its way: admitted, tried, failed over, passed on.

admit ──► attempt ──► done, or broken after the first byte
  ▲          │
  └──────────┴── refused or failed before it: another engine, or the queue
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.queue import Waiting
from quire_gateway.choosing.text_chunks import name_chunks, write_names
from quire_gateway.errors import ApiError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.engine_connection import EngineConnection
from quire_gateway.http.headers import to_engine, write_fields
from quire_gateway.http.request import Request
from quire_gateway.routing.document import ApiKey
from quire_gateway.serving.account import Account
from quire_gateway.serving.fleet import Fleet, Link
from quire_gateway.serving.inquiry import Inquiry, is_retry
from quire_gateway.serving.keep_awake import KeepAwake
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.record import Record
from quire_gateway.serving.relay import Outcome, Relay
from quire_gateway.serving.service import Grant, Service, Ticket

_MAX_FAILURES = 3
_MAX_REFUSALS = 8
"""Engines that refuse again and again know better than the gateway's prediction."""
_HEAD = (
    b"POST %b HTTP/1.1\r\n%b%bcontent-length: %d\r\nx-request-id: %b\r\nx-quire-priority: %b\r\n"
    b"x-quire-admit: %b\r\nx-quire-gateway: %b;%d\r\n%b\r\n"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all requests share.

    Parameters
    ----------
    gateway
        Under which engines report this gateway's counters.
    clock
        Seconds of the event loop.
    end
        Called once for each request that has ended, with the error to be answered, or None.
    """

    loop: asyncio.AbstractEventLoop
    fleet: Fleet
    metrics: GatewayMetrics
    gateway: bytes
    request_timeout_seconds: float
    clock: Callable[[], float]
    end: Callable[[ClientConnection, Record, ApiError | None], None]


class Exchange:
    """One request for a model; `Answering` for its client's connection."""

    __slots__ = (
        "_account",
        "_around",
        "_awake",
        "_client",
        "_connecting",
        "_connection",
        "_deadline",
        "_demand",
        "_failed",
        "_grant",
        "_inquiry",
        "_key",
        "_link",
        "_num_failures",
        "_num_refusals",
        "_record",
        "_relay",
        "_request",
        "_service",
        "_ticket",
        "_waiting",
    )

    def __init__(
        self,
        client: ClientConnection,
        request: Request,
        inquiry: Inquiry,
        service: Service,
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
        self._deadline: float | None = None
        self._failed: set[Endpoint] = set()
        self._num_failures = self._num_refusals = 0
        self._waiting: Waiting | None = None
        self._grant: Grant | None = None
        self._link: Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connection: EngineConnection | None = None
        self._relay: Relay | None = None
        self._awake: KeepAwake | None = None
        self._demand = self._predict()
        self._account = Account(service, key, inquiry, self._demand, record, around.metrics)
        self._ticket = Ticket(
            key=key,
            demand=self._demand,
            arrived_at=record.started_at,
            has_deadline=inquiry.deadline_seconds is not None,
        )

    def start(self) -> None:
        """Begin; the answer comes now or later.

        Raises
        ------
        ApiError
            The key's limits do not allow it.
        """
        self._account.open(is_retry=is_retry(self._request))
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def cancel(self) -> None:
        """See `Answering`."""
        if self._waiting is not None:
            self._service.cancel(self._waiting)
            self._wait_no_more()
        self._account.leave(self._around.clock(), was_sent=self._relay is not None)
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._leave_engine()
        self._record.status, self._record.reason = 0, "client_left"
        self._around.end(self._client, self._record, None)

    def on_due(self) -> None:
        """See `Answering`: the engine has taken too long."""
        if self._relay is not None:
            self._relay.on_failure("timeout", was_reused=False)

    def _ask(self) -> None:
        """Ask for an engine, until one is tried or none is to be had now."""
        while True:
            answer = self._service.ask(self._ticket, self._failed, self._take)
            if isinstance(answer, Waiting):
                self._waiting = answer
                self._keep_awake()
                return
            if self._attempt(answer):
                return

    def _take(self, answer: Grant | ApiError) -> None:
        """Take what came for who waited."""
        self._wait_no_more()
        if isinstance(answer, ApiError):
            self._fail(answer)
            return
        try:
            if not self._attempt(answer):
                self._ask()
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
        self._waiting = None
        if self._awake is not None:
            self._awake.stop()
            self._awake = None

    def _fail(self, error: Exception) -> None:
        """End with an error: there is no caller that would take it."""
        if isinstance(error, ApiError):
            self._account.refuse(error.reason, self._around.clock())
            self._around.end(self._client, self._record, error)
        else:
            self._leave_engine()
            self._client.fail(error)

    def _attempt(self, grant: Grant) -> bool:
        """Send the request to an engine; False if it has just gone."""
        link = self._around.fleet.links.get(grant.endpoint)
        if link is None:
            self._service.release(grant)
            self._around.metrics.retries.labels(self._record.service, "gone").inc()
            return False
        self._grant, self._link = grant, link
        connection = link.pool.take_idle()
        if connection is not None:
            self._send(connection)
            return True
        self._connecting = self._around.loop.create_task(link.pool.open(self._opened))
        return True

    def _opened(self, connection: EngineConnection | None) -> None:
        self._connecting = None
        if connection is None:
            self._settle(Outcome("failed", reason="connect"))
            return
        try:
            self._send(connection)
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def _send(self, connection: EngineConnection) -> None:
        client, grant, link, around = self._client, self._grant, self._link, self._around
        if grant is None or link is None:
            connection.abort()
            return
        relay = self._relay = Relay(
            client,
            self._request,
            self._inquiry.path,
            self._record.request_id,
            settle=self._settle,
            clock=around.clock,
        )
        link.relays.add(relay)
        self._connection = client.upstream = connection
        if client.is_paused:
            connection.pause_reading()
        client.set_deadline(around.request_timeout_seconds)
        connection.send(self._head(grant, link), self._request.body, relay)

    def _settle(self, outcome: Outcome) -> None:
        """The attempt has ended: that was it, or another engine is tried."""
        grant, relay = self._grant, self._relay
        if grant is None:
            return
        if relay is not None:
            self._record.first_byte_at = relay.first_byte_at
        self._leave_engine()
        try:
            self._judge(grant.endpoint, outcome)
            if outcome.kind in ("done", "broken"):
                self._account.close(outcome.status, outcome.usage, self._around.clock())
                self._around.end(self._client, self._record, None)
                return
            self._count(grant.endpoint, outcome)
            self._ask()
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._fail(error)

    def _count(self, endpoint: Endpoint, outcome: Outcome) -> None:
        """Give up when too much has gone wrong.

        Raises
        ------
        ApiError
            It has.
        """
        if outcome.kind == "refused":
            self._num_refusals += 1
        elif not outcome.is_nobodys_fault:
            self._num_failures += 1
            self._failed.add(endpoint)
        if self._num_refusals >= _MAX_REFUSALS:
            raise _refused(outcome)
        if self._num_failures >= _MAX_FAILURES:
            raise ApiError(502, "The engines failed on this request.", reason="failed")

    def _leave_engine(self) -> None:
        """Free what the attempt holds."""
        grant, link, relay, connection = self._grant, self._link, self._relay, self._connection
        self._grant = self._link = self._relay = self._connection = None
        self._client.upstream = None
        self._client.due_at = inf
        if link is not None and relay is not None:
            link.relays.discard(relay)
        if connection is not None and relay is not None:
            # if the client has left, or the engine hangs: the engine frees what it held
            connection.abandon(relay)
        if grant is not None:
            self._service.release(grant)

    def _judge(self, endpoint: Endpoint, outcome: Outcome) -> None:
        """Remember how the engine did."""
        record = self._record
        record.endpoint, record.status = endpoint.address, outcome.status
        record.num_attempts += 1
        if outcome.kind == "done":
            endpoint.succeed()
        elif outcome.kind == "refused":
            state = endpoint.state
            endpoint.refuse(self._demand.blocks(state.tokens_per_block) if state else 0.0)
            self._around.metrics.retries.labels(record.service, "refused").inc()
        elif not outcome.is_nobodys_fault:
            endpoint.fail(self._around.clock())
            self._around.metrics.failures.labels(record.service, outcome.reason).inc()
        if outcome.kind == "broken":
            record.reason = outcome.reason
        elif outcome.kind == "failed":
            self._around.metrics.retries.labels(record.service, outcome.reason).inc()

    def _predict(self) -> Demand:
        inquiry, document = self._inquiry, self._service.document
        is_background = inquiry.is_background
        if is_background is None:
            is_background = document.default_priority == "background"
        is_background = is_background or self._key.max_priority == "background"
        limits = document.thresholds
        seconds, promised = inquiry.deadline_seconds, limits.slo_time_to_first_token_seconds
        if promised is not None and not is_background:
            seconds = promised if seconds is None else min(seconds, promised)
        if seconds is not None:
            self._deadline = self._record.started_at + seconds
        return Demand(
            num_prompt_tokens=round(
                inquiry.num_prompt_tokens * self._service.arrivals.tokens_per_estimated
            ),
            max_tokens=inquiry.max_tokens,
            survival=self._service.survival,
            num_sequences=inquiry.num_sequences,
            is_background=is_background,
            chunks=name_chunks(inquiry.prompt_parts, self._key.salt),
            deadline_seconds=self._deadline,
        )

    def _head(self, grant: Grant, link: Link) -> bytes:
        """The head that the engine gets; of `x-quire-*` only what the gateway says itself."""
        headers = list(self._record.trace.headers)
        if self._deadline is not None:
            milliseconds = max(int(1000 * (self._deadline - self._around.clock())), 1)
            headers.append((b"x-quire-deadline-ms", b"%d" % milliseconds))
        if self._demand.chunks:
            headers.append((b"x-quire-prefix", write_names(self._demand.chunks)))
        if self._key.salt:
            headers.append((b"x-quire-salt", self._key.salt.encode()))
        return _HEAD % (
            self._inquiry.path.encode(),
            write_fields(link.headers),
            write_fields(to_engine(self._request.headers)),
            len(self._request.body),
            self._record.request_id,
            b"background" if self._demand.is_background else b"interactive",
            b"wait" if grant.holds_room else b"now",
            self._around.gateway,
            grant.counter,
            write_fields(headers),
        )


def _refused(outcome: Outcome) -> ApiError:
    return ApiError(
        outcome.status,
        "The engines have no room for this request. Send it again later.",
        reason="refused",
        code="rate_limit_exceeded" if outcome.status == 429 else "not_ready",
        retry_after_seconds=outcome.retry_after_seconds,
    )
