"""A request's claim to an engine: counted, admitted, judged. No bytes of it are here.

open ──► ask ──► Way ──► settle ──► done, or broken off
          ▲               │
          └───────────────┴── refused or failed before the first byte: another engine, or a wait
"""

from collections.abc import Callable
from dataclasses import dataclass

from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.queue import Waiting
from quire_gateway.errors import ApiError, engines_failed, no_files
from quire_gateway.http.pool import NO_FILES
from quire_gateway.routing.document import ApiKey
from quire_gateway.serving.account import Account
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.link import Way
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.relay import Outcome
from quire_gateway.serving.service import Service
from quire_gateway.serving.ticket import Grant, Ticket
from quire_gateway.serving.wish import Wish

_MAX_FAILURES = 3
_MAX_REFUSALS = 8
"""Engines that refuse again and again know better than the gateway's prediction."""

TellWay = Callable[["Way | Exception"], None]
"""How who waited is told; an `ApiError` is for the client."""


class Claim:
    """One request's; each is told of what became of its ways, and gives the next one."""

    __slots__ = ()

    def open(self) -> Way | None:
        """Return the first way, or None if one will be told.

        Raises
        ------
        ApiError
            There is none, and when to try again; its key's limits do not allow it.
        """
        raise NotImplementedError

    def settle(self, outcome: Outcome, first_byte_at: float | None) -> Way | None:
        """The way has ended: take that it is over, or return the next way as `open` does."""
        raise NotImplementedError

    def cancel(self, *, was_sent: bool) -> None:
        """Its client has left.

        Parameters
        ----------
        was_sent
            Whether an engine has it, and will not say what it took.
        """
        raise NotImplementedError


class Tries:
    """What has gone wrong with one request."""

    __slots__ = ("_num_failures", "_num_refusals")

    def __init__(self) -> None:
        self._num_failures = self._num_refusals = 0

    def count(self, outcome: Outcome) -> None:
        """Give up when too much has gone wrong.

        Raises
        ------
        ApiError
            It has.
        """
        if outcome.reason == NO_FILES:
            raise no_files()
        if outcome.kind == "refused":
            self._num_refusals += 1
        elif not outcome.is_nobodys_fault and outcome.reason != "connect":
            self._num_failures += 1  # of those that have seen it: it may be what they fail of
        if self._num_refusals >= _MAX_REFUSALS:
            raise _refused(outcome)
        if self._num_failures >= _MAX_FAILURES:
            raise engines_failed()


@dataclass(frozen=True, slots=True)
class Court:
    """What all claims share.

    Parameters
    ----------
    gateway
        Under which engines report this gateway's counters.
    clock
        Seconds of the event loop.
    """

    fleet: Fleet
    metrics: GatewayMetrics
    gateway: bytes
    clock: Callable[[], float]

    def claim(self, service: Service, key: ApiKey, wish: Wish, tell: TellWay) -> Claim:
        """Make a request's claim."""
        return OwnClaim(service, key, wish, tell, self)


class OwnClaim(Claim):
    """A claim that is decided in this process.

    Parameters
    ----------
    tell
        Called with the way, if it had to wait for one; not after `cancel`.
    """

    __slots__ = (
        "_account",
        "_court",
        "_failed",
        "_grant",
        "_num_estimated_tokens",
        "_service",
        "_tell",
        "_ticket",
        "_tries",
        "_waiting",
    )

    def __init__(
        self, service: Service, key: ApiKey, wish: Wish, tell: TellWay, court: Court
    ) -> None:
        self._service = service
        self._tell = tell
        self._court = court
        self._failed: frozenset[Endpoint] = frozenset()
        self._tries = Tries()
        self._waiting: Waiting | None = None
        self._grant: Grant | None = None
        self._num_estimated_tokens = wish.num_prompt_tokens
        demand = _predict(service, wish)
        self._account = Account(service, key, wish, demand, court.metrics)
        self._ticket = Ticket(
            key=key,
            demand=demand,
            arrived_at=wish.arrived_at,
            own_deadline=wish.own_deadline,
            is_stream=wish.is_stream,
        )

    def open(self) -> Way | None:
        """See `Claim`."""
        self._account.open()
        return self._ask()

    def settle(self, outcome: Outcome, first_byte_at: float | None) -> Way | None:
        """See `Claim`."""
        grant, self._grant = self._grant, None
        if grant is None:
            return None
        self._judge(grant, outcome)
        self._service.release(grant, None if outcome.is_over else self._ticket.demand)
        if outcome.is_over:
            self._tell = tell_nobody  # it leads back here: a cycle for the garbage collector
            self._account.close(outcome, first_byte_at, self._court.clock())
            return None
        try:
            self._tries.count(outcome)
        except ApiError as error:
            self._refuse(error)
            raise
        return self._ask()

    def cancel(self, *, was_sent: bool) -> None:
        """See `Claim`."""
        if self._waiting is not None:
            self._service.cancel(self._waiting)
            self._waiting = None
        self._account.leave(self._court.clock(), was_sent=was_sent)
        grant, self._grant = self._grant, None
        if grant is not None:
            self._service.release(grant, has_left=was_sent)

    def _ask(self) -> Way | None:
        """Ask until a way is found or none is to be had now."""
        while True:
            try:
                answer = self._service.ask(self._ticket, self._failed, self._take)
            except ApiError as error:
                self._refuse(error)
                raise
            if isinstance(answer, Waiting):
                self._waiting = answer
                return None
            way = self._way(answer)
            if way is not None:
                return way

    def _take(self, answer: Grant | ApiError) -> None:
        """Take what came for who waited."""
        self._waiting = None
        if isinstance(answer, ApiError):
            self._refuse(answer)
            self._tell(answer)
            return
        try:
            way = self._way(answer) or self._ask()
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._tell(error)
        else:
            if way is not None:
                self._tell(way)

    def _way(self, grant: Grant) -> Way | None:
        """Return the way to what was granted; None if the engine has just gone."""
        court = self._court
        link = court.fleet.links.get(grant.endpoint)
        if link is None:
            self._service.release(grant)
            court.metrics.retries.labels(self._service.label, "gone").inc()
            return None
        self._grant = grant
        return Way(
            link,
            court.gateway,
            grant.counter,
            grant.holds_room,
            grant.first_byte_seconds,
            self._ticket.demand.deadline_seconds == self._ticket.own_deadline,
        )

    def _refuse(self, error: ApiError) -> None:
        self._account.refuse(error.reason, self._court.clock())

    def _learn_size(self, num_prompt_tokens: int) -> None:
        """The engine that refused it has counted its prompt."""
        if self._ticket.demand.num_prompt_tokens != num_prompt_tokens:
            self._service.arrivals.learn(self._num_estimated_tokens, num_prompt_tokens)
            self._ticket.demand.count_prompt(num_prompt_tokens)

    def _judge(self, grant: Grant, outcome: Outcome) -> None:
        """Remember how the engine did."""
        endpoint = grant.endpoint
        if outcome.kind == "done":
            endpoint.succeed()
            return
        metrics, service = self._court.metrics, self._service.label
        if outcome.kind == "refused":
            endpoint.refuse(grant.num_blocks)
            if outcome.usage is not None:
                self._learn_size(outcome.usage.num_prompt_tokens)
            metrics.retries.labels(service, "refused").inc()
            return
        if not outcome.is_nobodys_fault:
            self._failed |= {endpoint}
            if outcome.reason == "timeout":
                self._ticket.hung_at |= {endpoint}
            endpoint.fail(self._court.clock())
            metrics.failures.labels(service, outcome.reason).inc()
        if outcome.kind == "failed":
            metrics.retries.labels(service, outcome.reason).inc()


def tell_nobody(answer: Way | Exception) -> None:
    """Nobody waits any more."""


def _predict(service: Service, wish: Wish) -> Demand:
    return Demand(
        num_prompt_tokens=round(wish.num_prompt_tokens * service.arrivals.tokens_per_estimated),
        max_tokens=wish.max_tokens,
        survival=service.survival,
        num_sequences=wish.num_sequences,
        is_background=wish.is_background,
        chunks=wish.chunks,
        deadline_seconds=wish.deadline,
        prompt_error=service.arrivals.prompt_error,
    )


def _refused(outcome: Outcome) -> ApiError:
    return ApiError(
        outcome.status,
        "The engines have no room for this request. Send it again later.",
        reason="refused",
        code="rate_limit_exceeded" if outcome.status == 429 else "not_ready",
        retry_after_seconds=outcome.retry_after_seconds,
    )
