"""Routers of a fleet in virtual time: quire's own service as it is, and the rules of its rivals.

round_robin     the engines in turn
least_request   the engine with the fewest requests of this router
scores          2 x queue + 2 x free cache + 3 x prefix, of engines that are not saturated:
                max(waiting / 5, cache in use / 0.8) below 1 (llm-d's scorers and detector)
cache_aware     the longest prefix sent before, if a third of the prompt or more, else the fewest
                requests; the fewest, too, while loads differ by 64 and by half (vllm-router 0.1)

The rivals see queues and caches as they are at the moment, which is better than any of them has it.
What an engine refuses they try again as vllm-router does: five times, 50 ms later and then half as
long again each time.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from benchmarks.fleet_engines import HOP_SECONDS, Answer, Listener, VirtualEngine
from quire_engine.protocol.messages import AddRequest, Thresholds
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.text_chunks import write_names
from quire_gateway.errors import ApiError
from quire_gateway.routing.document import ApiKey, RoutingDocument
from quire_gateway.serving.service import Service
from quire_gateway.serving.ticket import Grant, Ticket

_STOP_TOKEN = 2
_NOBODY = ApiKey(name="", sha256="")
_MAX_REFUSALS = 8
"""As in the gateway."""
_TICK_SECONDS = 0.1
_RETRIES, _BACKOFF_SECONDS, _BACKOFF_FACTOR = 5, 0.05, 1.5


@dataclass(slots=True, eq=False)
class Job:
    """One request of a client, and what has become of it."""

    number: int
    arrival: float
    prompt: list[int]
    num_output_tokens: int
    max_tokens: int
    guessed_prompt_tokens: int
    """What a gateway makes of the prompt's length."""
    chunks: tuple[int, ...]
    first_token_at: float | None = None
    ended_at: float | None = None
    num_received: int = 0
    num_races: int = 0
    """How often an engine refused it at once."""
    num_refusals: int = 0
    """How often one refused it after it had waited there."""
    num_cached_tokens: int = 0
    engine: str = ""

    def message(self, **fields: object) -> AddRequest:
        """The request as an engine gets it."""
        made = AddRequest(
            client_id="fleet",
            request_id=f"{self.number}",
            prompt_token_ids=self.prompt,
            sampling=SamplingParams(
                max_tokens=self.max_tokens, seed=self.number, stop_token_ids=(_STOP_TOKEN,)
            ),
            prefix_chunks=write_names(self.chunks).decode().split(",") if self.chunks else [],
        )
        return msgspec.structs.replace(made, **fields)

    def take(self, engine: VirtualEngine, answer: Answer, now: float) -> None:
        """It was answered."""
        self.engine = engine.name
        self.first_token_at, self.ended_at = answer.first_token_at, now
        self.num_received, self.num_cached_tokens = answer.num_tokens, answer.num_cached_tokens


class Router(ABC):
    """Brings requests to engines."""

    def __init__(self, engines: Sequence[VirtualEngine], seed: int) -> None:
        self.engines = engines
        self.random = random.Random(seed)
        self.loop = asyncio.get_running_loop()

    @abstractmethod
    async def run(self, job: Job) -> None:
        """Bring one request to its end."""

    async def attempt(self, engine: VirtualEngine, job: Job, message: AddRequest) -> bool:
        """Try one engine; whether it answered."""
        await asyncio.sleep(HOP_SECONDS)
        answer = engine.add(message)
        if answer is None:
            job.num_races += 1
            return False
        if not await answer.ended:
            job.num_refusals += 1
            return False
        await asyncio.sleep(HOP_SECONDS)
        job.take(engine, answer, self.loop.time())
        return True

    async def work(self) -> None:
        """What is to be done now and then, until it is cancelled."""
        await self.loop.create_future()


class _Rival(Router):
    def __init__(self, engines: Sequence[VirtualEngine], seed: int) -> None:
        super().__init__(engines, seed)
        self.load = dict.fromkeys(engines, 0)

    @abstractmethod
    def pick(self, job: Job) -> VirtualEngine:
        """Choose an engine."""

    async def run(self, job: Job) -> None:
        backoff = _BACKOFF_SECONDS
        for _ in range(1 + _RETRIES):
            engine = self.pick(job)
            self.load[engine] += 1
            try:
                if await self.attempt(engine, job, job.message()):
                    return
            finally:
                self.load[engine] -= 1
            await asyncio.sleep(backoff)
            backoff *= _BACKOFF_FACTOR

    def least_loaded(self) -> VirtualEngine:
        least = min(self.load.values())
        return self.random.choice([one for one in self.engines if self.load[one] == least])


class RoundRobin(_Rival):
    """The engines in turn."""

    _next = 0

    def pick(self, job: Job) -> VirtualEngine:
        self._next += 1
        return self.engines[self._next % len(self.engines)]


class LeastRequest(_Rival):
    """The engine with the fewest requests."""

    def pick(self, job: Job) -> VirtualEngine:
        return self.least_loaded()


class _PrefixRival(_Rival):
    """Remembers which chunks it sent where."""

    def __init__(self, engines: Sequence[VirtualEngine], seed: int) -> None:
        super().__init__(engines, seed)
        self._sent: defaultdict[int, set[VirtualEngine]] = defaultdict(set)

    def matched(self, job: Job) -> dict[VirtualEngine, float]:
        """Share of the prompt's chunks that each engine was sent before."""
        shares = dict.fromkeys(self.engines, 0.0)
        holders = set(self.engines)
        for count, chunk in enumerate(job.chunks, 1):
            holders &= self._sent.get(chunk, set())
            for engine in holders:
                shares[engine] = count / len(job.chunks)
        return shares

    def remember(self, job: Job, engine: VirtualEngine) -> VirtualEngine:
        for chunk in job.chunks:
            self._sent[chunk].add(engine)
        return engine


class Scores(_PrefixRival):
    """Weighted scores of engines that are not saturated."""

    def pick(self, job: Job) -> VirtualEngine:
        stats = {engine: engine.stats for engine in self.engines}
        queue = {engine: stats[engine].num_waiting for engine in self.engines}
        used = {e: stats[e].blocks.held / stats[e].blocks.total for e in self.engines}
        free = [e for e in self.engines if max(queue[e] / 5, used[e] / 0.8) < 1.0]
        matched, most, least = self.matched(job), max(queue.values()), min(queue.values())

        def score(engine: VirtualEngine) -> float:
            of_queue = (most - queue[engine]) / (most - least) if most > least else 1.0
            return 2 * of_queue + 2 * (1 - used[engine]) + 3 * matched[engine]

        scored = [(score(engine), engine) for engine in free or self.engines]
        best = max(value for value, _ in scored)
        return self.remember(job, self.random.choice([e for value, e in scored if value == best]))


class CacheAware(_PrefixRival):
    """The longest prefix, unless loads are far apart."""

    def pick(self, job: Job) -> VirtualEngine:
        most, least = max(self.load.values()), min(self.load.values())
        matched = self.matched(job)
        best = max(self.engines, key=lambda engine: matched[engine])
        is_uneven = most - least > 64 and most > 1.5 * least
        if is_uneven or matched[best] <= 0.3:
            best = self.least_loaded()
        return self.remember(job, best)


class Quire(Router):
    """The gateway's service."""

    def __init__(
        self,
        engines: Sequence[VirtualEngine],
        seed: int,
        thresholds: Thresholds | None = None,
        name: str = "g",
    ) -> None:
        super().__init__(engines, seed)
        if thresholds is None:
            thresholds = engines[0].core.profile().thresholds
        self._name = name
        self._counter = 0
        self._document = RoutingDocument(
            schema_version=1, namespace="d", name="s", model_names=("m",), thresholds=thresholds
        )
        self._listeners: dict[VirtualEngine, Listener] = {}
        self._by_endpoint: dict[Endpoint, VirtualEngine] = {}
        self.service = self._make_service()

    def _make_service(self) -> Service:
        service = Service(
            self._document,
            next_counter=self._count,
            clock=self.loop.time,
            chance=self.random.random,
            stale_seconds=3.0,
        )
        for engine in self.engines:
            endpoint = Endpoint(
                engine.name, accelerator="", gateway=self._name, slot=service.index.join()
            )
            service.add(endpoint)
            self._by_endpoint[endpoint] = engine
            listener = Listener(
                partial(self._hear, service, endpoint), partial(self._beat, endpoint)
            )
            engine.follow(listener)
            self._listeners[engine] = listener
        return service

    def restart(self) -> None:
        """Forget everything, as a new process; nothing may be on its way."""
        for engine, listener in self._listeners.items():
            engine.leave(listener)
        self._by_endpoint.clear()
        self.service = self._make_service()

    def _count(self) -> int:
        self._counter += 1
        return self._counter

    def _hear(self, service: Service, endpoint: Endpoint, state: EngineState) -> None:
        endpoint.hear(state, self.loop.time())
        service.hear(endpoint, state)

    def _beat(self, endpoint: Endpoint) -> None:
        endpoint.beat(self.loop.time())

    async def work(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.service.tick()

    async def run(self, job: Job) -> None:
        service = self.service
        now = self.loop.time()
        seconds = self._document.thresholds.slo_time_to_first_token_seconds
        demand = Demand(
            num_prompt_tokens=job.guessed_prompt_tokens,
            max_tokens=job.max_tokens,
            survival=service.survival,
            chunks=job.chunks,
            deadline_seconds=None if seconds is None else now + seconds,
        )
        ticket = Ticket(key=_NOBODY, demand=demand, arrived_at=now)
        for _ in range(_MAX_REFUSALS):
            try:
                grant = await _admit(service, ticket)
            except ApiError:
                return
            engine = self._by_endpoint[grant.endpoint]
            if await self.attempt(engine, job, self._message(job, grant, demand)):
                grant.endpoint.succeed()
                service.release(grant)
                return
            grant.endpoint.refuse(grant.num_blocks)
            service.release(grant, demand)

    def _message(self, job: Job, grant: Grant, demand: Demand) -> AddRequest:
        deadline = demand.deadline_seconds
        return job.message(
            starts_now=not grant.holds_room,
            holds_room=grant.holds_room,
            deadline_seconds=None if deadline is None else deadline - self.loop.time(),
            gateway=self._name,
            gateway_counter=grant.counter,
        )


async def _admit(service: Service, ticket: Ticket) -> Grant:
    told: asyncio.Future[Grant | ApiError] = asyncio.get_running_loop().create_future()
    answer = service.ask(ticket, set(), told.set_result)
    granted = answer if isinstance(answer, Grant) else await told
    if isinstance(granted, ApiError):
        raise granted
    return granted


ROUTERS: Mapping[str, type[Router]] = {
    "quire": Quire,
    "round_robin": RoundRobin,
    "least_request": LeastRequest,
    "scores": Scores,
    "cache_aware": CacheAware,
}
