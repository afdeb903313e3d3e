"""What a gateway says at `GET /fleet`, as far as scaling needs it."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from quire_engine.protocol.state import EngineState
from quire_operator.scaling.inputs import GatewayFigures

SCHEMA_VERSION = 1


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
    num_unserved: int = 0
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
            num_unserved=demand.num_unserved,
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

    def find(self, service: tuple[str, str]) -> SeenService | None:
        """Its part about a service, by namespace and name."""
        return self._by_service.get(service)

    @cached_property
    def _by_service(self) -> dict[tuple[str, str], SeenService]:
        return {(one.namespace, one.name): one for one in self.fleet.services}
