"""A gateway in virtual time: its own service and endpoints, without connections.

arrive ──► ask ──► grant ──► an engine, a hop away ──► answered
            │        ▲            │
            └─ queue ┘            └── refused, or died before the first token: ask again
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from quire_engine.protocol.messages import Thresholds, TokenDelta
from quire_engine.protocol.state import EngineState
from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.queue import Waiting
from quire_gateway.errors import ApiError
from quire_gateway.routing.document import ApiKey, RoutedAccelerator, RoutingDocument
from quire_gateway.serving.service import Service
from quire_gateway.serving.ticket import Grant, Ticket
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.engine import SimulatedEngine, is_refusal
from quire_local.simulate.jobs import Fate, Job

HOP_SECONDS = 0.001
TICK_SECONDS = 0.1
STALE_SECONDS = 3.0
_MAX_REFUSALS = 8
_MAX_FAILURES = 3
"""As in the gateway's exchange."""
_NOBODY = ApiKey(name="", sha256="")


@dataclass(slots=True, eq=False)
class Attempt:
    """A request on its way through the gateway."""

    job: Job
    ticket: Ticket
    grant: Grant | None = None
    failed: set[Endpoint] = field(default_factory=set)


class SimulatedGateway:
    """One gateway.

    Parameters
    ----------
    settled
        Called with each request whose fate is known.
    """

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        *,
        thresholds: Thresholds,
        cold_start_queue_seconds: float,
        accelerators: tuple[str, ...],
        seed: int,
        settled: Callable[[Job], None],
    ) -> None:
        self.name = name
        self._agenda = agenda
        self._settled = settled
        self._counter = 0
        self._engines: dict[Endpoint, SimulatedEngine] = {}
        self._endpoints: dict[str, Endpoint] = {}
        """By the engine's name."""
        self._attempts: dict[Job, Attempt] = {}
        self._is_ticking = False
        self._accelerators = accelerators
        self._document = RoutingDocument(
            schema_version=1,
            namespace="d",
            name="s",
            model_names=("m",),
            thresholds=thresholds,
            cold_start_queue_seconds=cold_start_queue_seconds,
            accelerators=tuple(RoutedAccelerator(name=one) for one in accelerators),
        )
        self.service = Service(
            self._document,
            next_counter=self._count,
            clock=agenda.time,
            chance=random.Random(seed).random,
            stale_seconds=STALE_SECONDS,
            call_soon=agenda.soon,
        )

    @property
    def num_waiting(self) -> int:
        """Requests in its queue."""
        return len(self.service.queue)

    def oldest_wait(self) -> float:
        """Seconds that the longest waiting request has waited."""
        now = self._agenda.now
        return max((now - one.arrived_at for one in self.service.queue), default=0.0)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Follow planned parts of the traffic, by type."""
        accelerators = tuple(
            RoutedAccelerator(name=one, traffic_share=shares.get(one)) for one in self._accelerators
        )
        if accelerators != self.service.document.accelerators:
            document = self._document.__replace__(accelerators=accelerators)
            self.service.update(document)

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Take other limits from the routing document."""
        self._document = self._document.__replace__(thresholds=thresholds)
        self.service.update(self.service.document.__replace__(thresholds=thresholds))

    def join(self, name: str, engine_type: str, engine: SimulatedEngine) -> Endpoint:
        """Use another engine."""
        endpoint = Endpoint(
            name, accelerator=engine_type, gateway=self.name, slot=self.service.index.join()
        )
        self.service.add(endpoint)
        self._engines[endpoint] = engine
        self._endpoints[name] = endpoint
        return endpoint

    def find(self, name: str) -> Endpoint | None:
        """Return an engine's endpoint, if it is used."""
        return self._endpoints.get(name)

    def lose_engine(self, name: str, jobs: Iterable[Job]) -> None:
        """Forget an engine that has ended; what it owed to this gateway is tried elsewhere."""
        endpoint = self._endpoints.pop(name, None)
        if endpoint is not None:
            self.service.endpoints.remove(endpoint)
            self.service.index.leave(endpoint.slot)
            del self._engines[endpoint]
        for job in jobs:
            if job in self._attempts:
                self.lose(job)

    def hear(self, endpoint: Endpoint, state: EngineState) -> None:
        """An engine tells its state."""
        endpoint.hear(state, self._agenda.now)
        self.service.hear(endpoint, state)

    def arrive(self, job: Job) -> None:
        """Take a client's request."""
        service, now = self.service, self._agenda.now
        limits = service.document.thresholds
        seconds = limits.slo_time_to_first_token_seconds
        demand = Demand(
            num_prompt_tokens=round(
                job.guessed_prompt_tokens * service.arrivals.tokens_per_estimated
            ),
            max_tokens=job.max_tokens,
            survival=service.survival,
            deadline_seconds=None if seconds is None else now + seconds,
        )
        service.arrivals.arrive(demand.num_prompt_tokens, is_retry=False)
        ticket = Ticket(key=_NOBODY, demand=demand, arrived_at=now)
        attempt = self._attempts[job] = Attempt(job, ticket)
        self._ask(attempt)

    def take(self, job: Job, delta: TokenDelta, now: float) -> None:
        """Take what an engine says of a request."""
        attempt = self._attempts[job]
        if is_refusal(delta):
            self._release(attempt)
            self._refused(attempt)
            return
        if delta.token_ids:
            if job.first_token_at is None:
                job.first_token_at = now + HOP_SECONDS
            job.num_received += len(delta.token_ids)
        if delta.finish_reason is None:
            return
        job.ended_at, job.fate = now + HOP_SECONDS, Fate.ANSWERED
        grant = self._release(attempt)
        job.engine_type = grant.endpoint.accelerator
        grant.endpoint.succeed()
        self._account(job)
        self._settle(job)

    def lose(self, job: Job) -> None:
        """The engine of a request has died: another one, or an error after the first token."""
        attempt = self._attempts[job]
        grant = self._release(attempt)
        grant.endpoint.fail(self._agenda.now)
        if job.first_token_at is not None:
            job.fate, job.ended_at = Fate.LOST, self._agenda.now
            self._settle(job)
            return
        job.num_failovers += 1
        attempt.failed.add(grant.endpoint)
        if job.num_failovers >= _MAX_FAILURES:
            self._refuse(attempt, "failed")
        else:
            self._ask(attempt)

    def _count(self) -> int:
        self._counter += 1
        return self._counter

    def _ask(self, attempt: Attempt) -> None:
        try:
            answer = self.service.ask(
                attempt.ticket, attempt.failed, partial(self._answered, attempt)
            )
        except ApiError as error:
            self._refuse(attempt, error.reason)
            return
        if isinstance(answer, Waiting):
            self._tick_on()
        else:
            self._answered(attempt, answer)

    def _answered(self, attempt: Attempt, answer: Grant | ApiError) -> None:
        if isinstance(answer, ApiError):
            self._refuse(attempt, answer.reason)
            return
        attempt.grant = answer
        self._agenda.after(HOP_SECONDS, partial(self._bring, attempt))

    def _bring(self, attempt: Attempt) -> None:
        """The request has come to the engine."""
        grant, job = attempt.grant, attempt.job
        if grant is None:
            raise RuntimeError("bug: a request is on its way to no engine")
        engine = self._engines.get(grant.endpoint)
        if engine is None:  # it died while the request was on its way
            self.lose(job)
            return
        deadline = attempt.ticket.demand.deadline_seconds
        refusal = engine.add(
            job,
            holds_room=grant.holds_room,
            deadline_seconds=None if deadline is None else max(deadline - self._agenda.now, 0.001),
            gateway=self.name,
            count=grant.counter,
        )
        if refusal is not None:
            self._release(attempt)
            self._refused(attempt, grant)

    def _refused(self, attempt: Attempt, grant: Grant | None = None) -> None:
        """An engine has no room for it."""
        if grant is not None:
            grant.endpoint.refuse(grant.num_blocks)
        attempt.job.num_refusals += 1
        if attempt.job.num_refusals >= _MAX_REFUSALS:
            self._refuse(attempt, "refused")
        else:
            self._ask(attempt)

    def _refuse(self, attempt: Attempt, reason: str) -> None:
        job = attempt.job
        job.fate, job.refusal, job.ended_at = Fate.REFUSED, reason, self._agenda.now
        self.service.arrivals.refuse(reason)
        self._settle(job)

    def _release(self, attempt: Attempt) -> Grant:
        grant, attempt.grant = attempt.grant, None
        if grant is None:
            raise RuntimeError("bug: a request is released that no engine has")
        self.service.release(grant)
        return grant

    def _settle(self, job: Job) -> None:
        del self._attempts[job]
        self._settled(job)

    def _account(self, job: Job) -> None:
        arrivals, limits = self.service.arrivals, self.service.document.thresholds
        usage = TokenUsage(job.num_prompt_tokens, job.num_received)
        arrivals.end(job.guessed_prompt_tokens, usage)
        if limits.slo_time_to_first_token_seconds is not None:
            arrivals.first_token.count(
                job.first_token_seconds, limits.slo_time_to_first_token_seconds
            )
        if limits.slo_time_per_output_token_seconds is not None and job.num_received > 1:
            arrivals.output_token.count(
                job.per_token_seconds, limits.slo_time_per_output_token_seconds
            )

    def _block_size(self, grant: Grant) -> int:
        state = grant.endpoint.state
        return state.tokens_per_block if state else 16

    def _tick_on(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._agenda.after(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        self.service.tick()
        if self.num_waiting:
            self._tick_on()
