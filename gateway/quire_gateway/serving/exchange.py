"""One request on its way: admitted, tried, failed over, passed on.

admit ──► attempt ──► done, or broken after the first byte
  ▲          │
  └──────────┴── refused or failed before it: another engine, or the queue
"""

import asyncio

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.text_chunks import name_chunks, write_names
from quire_gateway.errors import ApiError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.headers import to_engine, write_head
from quire_gateway.http.request import Request
from quire_gateway.routing.document import ApiKey
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


class Exchange:
    """One request for a model."""

    def __init__(
        self,
        client: ClientConnection,
        request: Request,
        inquiry: Inquiry,
        service: Service,
        key: ApiKey,
        *,
        fleet: Fleet,
        metrics: GatewayMetrics,
        record: Record,
        gateway: str,
        request_timeout_seconds: float,
    ) -> None:
        self._client = client
        self._request = request
        self._inquiry = inquiry
        self._service = service
        self._key = key
        self._fleet = fleet
        self._metrics = metrics
        self._record = record
        self._gateway = gateway
        self._timeout_seconds = request_timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._deadline: float | None = None
        self._demand = self._predict()

    async def run(self) -> None:
        """Answer it.

        Raises
        ------
        ApiError
            It cannot be answered, and nothing has gone out.
        """
        demand = self._demand
        size = demand.num_prompt_tokens + demand.num_output_tokens * demand.num_sequences
        self._service.access.spend(self._key, size, self._record.started_at)
        arrivals = self._service.arrivals
        arrivals.arrive(demand.num_prompt_tokens, is_retry=is_retry(self._request))
        try:
            outcome = await self._answer()
        except ApiError as error:
            self._correct(-size)  # it took nothing
            arrivals.refuse(error.reason)
            raise
        if outcome.status >= 400:
            self._correct(-size)
        else:
            self._count(size, outcome.usage)

    async def _answer(self) -> Outcome:
        """Try engines until one has answered."""
        demand = self._demand
        ticket = Ticket(
            key=self._key,
            demand=demand,
            arrived_at=self._record.started_at,
            has_deadline=self._inquiry.deadline_seconds is not None,
        )
        failed: set[Endpoint] = set()
        num_failures, num_refusals = 0, 0
        while True:
            grant = await self._admit(ticket, failed)
            outcome = await self._attempt(grant)
            if outcome.kind in ("done", "broken"):
                return outcome
            if outcome.kind == "refused":
                num_refusals += 1
                if num_refusals >= _MAX_REFUSALS:
                    raise _refused(outcome)
            elif not outcome.is_nobodys_fault:
                num_failures += 1
                failed.add(grant.endpoint)
                if num_failures >= _MAX_FAILURES:
                    raise ApiError(502, "The engines failed on this request.", reason="failed")

    async def _admit(self, ticket: Ticket, failed: set[Endpoint]) -> Grant:
        """Return the engine that it goes to; a stream that waits for a first one is kept awake."""
        service = self._service
        if not self._inquiry.is_stream or service.has_eligible():
            return await service.admit(ticket, failed)
        awake = KeepAwake(self._client, self._record.request_id, lambda: not service.has_eligible())
        try:
            return await service.admit(ticket, failed)
        finally:
            awake.stop()

    def _correct(self, num_more: float) -> None:
        self._service.access.correct(self._key, num_more, self._loop.time())

    def _count(self, num_estimated: float, usage: TokenUsage | None) -> None:
        """Count what it took, as far as that is known."""
        self._record.usage = usage
        service, key = self._record.service, self._key.name
        if usage is None:
            self._metrics.key_tokens.labels(service, key, "estimated").inc(num_estimated)
            return
        self._correct(usage.num_tokens - num_estimated)
        self._metrics.key_tokens.labels(service, key, "prompt").inc(usage.num_prompt_tokens)
        self._metrics.key_tokens.labels(service, key, "completion").inc(usage.num_output_tokens)
        self._service.arrivals.end(self._inquiry.num_prompt_tokens, usage)
        self._judge_promises(usage)

    def _judge_promises(self, usage: TokenUsage) -> None:
        """Count whether the first token and the pace were as promised; streams show both."""
        first_at, limits = self._record.first_byte_at, self._service.document.thresholds
        if first_at is None or not self._inquiry.is_stream or self._demand.is_background:
            return
        promised = limits.slo_time_to_first_token_seconds
        if promised is not None:
            seconds = first_at - self._record.started_at
            self._service.arrivals.first_token.count(seconds, promised)
        promised = limits.slo_time_per_output_token_seconds
        if promised is not None and usage.num_output_tokens > 1:
            seconds = (self._loop.time() - first_at) / (usage.num_output_tokens - 1)
            self._service.arrivals.output_token.count(seconds, promised)

    async def _attempt(self, grant: Grant) -> Outcome:
        endpoint = grant.endpoint
        link = self._fleet.links.get(endpoint)
        try:
            if link is None:
                return Outcome("failed", reason="gone", is_nobodys_fault=True)
            outcome = await self._send(grant, link)
        finally:
            self._service.release(grant)
        self._judge(endpoint, outcome)
        return outcome

    async def _send(self, grant: Grant, link: Link) -> Outcome:
        relay = Relay(self._client, self._request, self._inquiry.path, self._record.request_id)
        try:
            connection = await link.pool.take()
        except (OSError, TimeoutError):
            return Outcome("failed", reason="connect")
        link.relays.add(relay)
        self._client.upstream = connection
        if self._client.is_paused:
            connection.pause_reading()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await connection.send(self._head(grant, link), self._request.body, relay)
                outcome = await relay.outcome
        except TimeoutError:
            relay.on_failure("timeout", was_reused=False)
            outcome = relay.outcome.result()
        finally:
            self._client.upstream = None
            link.relays.discard(relay)
            # if the client has left, or the engine hangs: the engine frees what it held
            connection.abandon(relay)
        self._record.first_byte_at = relay.first_byte_at
        return outcome

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
            self._metrics.retries.labels(record.service, "refused").inc()
        elif not outcome.is_nobodys_fault:
            endpoint.fail(self._loop.time())
            self._metrics.failures.labels(record.service, outcome.reason).inc()
        if outcome.kind == "broken":
            record.reason = outcome.reason
        elif outcome.kind == "failed":
            self._metrics.retries.labels(record.service, outcome.reason).inc()

    def _predict(self) -> Demand:
        inquiry, document = self._inquiry, self._service.document
        is_background = inquiry.is_background
        if is_background is None:
            is_background = document.default_priority == "background"
        is_background = is_background or self._key.max_priority == "background"
        limits = document.thresholds
        bounds = [inquiry.deadline_seconds]
        if not is_background:
            bounds.append(limits.slo_time_to_first_token_seconds)
        seconds = min((one for one in bounds if one is not None), default=None)
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
        priority = b"background" if self._demand.is_background else b"interactive"
        headers = [
            *link.headers,
            *to_engine(self._request.headers),
            *self._record.trace.headers,
            (b"content-length", b"%d" % len(self._request.body)),
            (b"x-request-id", self._record.request_id),
            (b"x-quire-priority", priority),
            (b"x-quire-admit", b"wait" if grant.holds_room else b"now"),
            (b"x-quire-gateway", b"%b;%d" % (self._gateway.encode(), grant.counter)),
        ]
        if self._deadline is not None:
            milliseconds = max(int(1000 * (self._deadline - self._loop.time())), 1)
            headers.append((b"x-quire-deadline-ms", b"%d" % milliseconds))
        if self._demand.chunks:
            headers.append((b"x-quire-prefix", write_names(self._demand.chunks)))
        if self._key.salt:
            headers.append((b"x-quire-salt", self._key.salt.encode()))
        return write_head(b"POST %b HTTP/1.1" % self._inquiry.path.encode(), headers)


def _refused(outcome: Outcome) -> ApiError:
    return ApiError(
        outcome.status,
        "The engines have no room for this request. Send it again later.",
        reason="refused",
        code="rate_limit_exceeded" if outcome.status == 429 else "not_ready",
        retry_after_seconds=outcome.retry_after_seconds,
    )
