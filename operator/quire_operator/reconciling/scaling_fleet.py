"""What gateways see: `GET /fleet` of each, as far as scaling needs it.

One that does not answer is not heard; what it said last grows old.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import aiohttp
import msgspec

from quire_engine.protocol.state import EngineState
from quire_operator.cluster.store import Key
from quire_operator.scaling.inputs import GatewayFigures

SCHEMA_VERSION = 1
_TIMEOUT = aiohttp.ClientTimeout(total=4.0, connect=2.0)
_MOST_BYTES = 256 << 20
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, ValueError)


class SeenQueue(msgspec.Struct, kw_only=True):
    """Who waits, of one class."""

    waiting: int = 0
    oldest_seconds: float = 0.0


class SeenAttainment(msgspec.Struct, kw_only=True):
    """How a promise was kept."""

    met: int = 0
    missed: int = 0


class SeenDemand(msgspec.Struct, kw_only=True):
    """Counts since the gateway started."""

    seconds: float
    prompt_bounds: tuple[int, ...]
    output_bounds: tuple[int, ...]
    arrivals: tuple[int, ...]
    ended: tuple[tuple[int, ...], ...]
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    first_token: SeenAttainment = msgspec.field(default_factory=SeenAttainment)
    output_token: SeenAttainment = msgspec.field(default_factory=SeenAttainment)


class SeenEngine(msgspec.Struct, kw_only=True):
    """One engine."""

    address: str
    silent_seconds: float
    state: EngineState | None = None


class SeenService(msgspec.Struct, kw_only=True):
    """One service."""

    namespace: str
    name: str
    demand: SeenDemand
    queue: dict[str, SeenQueue] = {}
    engines: list[SeenEngine] = []

    def figures(self, gateway: str, age_seconds: float) -> GatewayFigures:
        """The same for scaling."""
        demand = self.demand
        interactive = self.queue.get("interactive", SeenQueue())
        return GatewayFigures(
            gateway=gateway,
            age_seconds=age_seconds,
            seconds=demand.seconds,
            prompt_bounds=demand.prompt_bounds,
            output_bounds=demand.output_bounds,
            arrivals=demand.arrivals,
            ended=demand.ended,
            prompt_tokens=demand.prompt_tokens,
            output_tokens=demand.output_tokens,
            cached_tokens=demand.cached_tokens,
            num_first_token_met=demand.first_token.met,
            num_first_token_missed=demand.first_token.missed,
            num_per_token_met=demand.output_token.met,
            num_per_token_missed=demand.output_token.missed,
            num_waiting=interactive.waiting,
            num_background_waiting=self.queue.get("background", SeenQueue()).waiting,
            oldest_seconds=interactive.oldest_seconds,
        )


class SeenFleet(msgspec.Struct, kw_only=True):
    """All that a gateway sees."""

    gateway: str
    services: list[SeenService] = []
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one gateway said."""

    fleet: SeenFleet
    at: float
    """Monotonic."""

    def find(self, service: Key) -> SeenService | None:
        """Its part about a service."""
        found = (one for one in self.fleet.services if (one.namespace, one.name) == service)
        return next(found, None)


class Gateways:
    """The newest reports of all gateways."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.reports: dict[str, Report] = {}
        """By URL."""

    async def ask(self, urls: Iterable[str]) -> None:
        """Ask these; others are gone."""
        wanted = list(urls)
        for url in self.reports.keys() - set(wanted):
            del self.reports[url]
        await asyncio.gather(*map(self._ask, wanted))

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, url: str) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        try:
            async with self._session.get(f"{url}/fleet", allow_redirects=False) as answer:
                answer.raise_for_status()
                body = await answer.content.read(_MOST_BYTES)
                while more := await answer.content.read(_MOST_BYTES):
                    body += more
            fleet = msgspec.json.decode(body, type=SeenFleet)
        except _FAILURES:
            return
        if fleet.schema_version == SCHEMA_VERSION:
            self.reports[url] = Report(fleet=fleet, at=self._clock())
