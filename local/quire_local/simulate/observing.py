"""What whoever scales can see: no more than gateways and engines say, and what was ordered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quire_engine.protocol.state import EngineState
from quire_gateway.serving.arrivals import DemandReport
from quire_local.simulate.fleet import Status
from quire_local.simulate.hardware import EngineType


@dataclass(frozen=True, kw_only=True)
class ReplicaSeen:
    """One replica."""

    name: str
    engine_type: str
    status: Status
    waiting_since: float | None
    """Since when it has had no node."""
    state: EngineState | None
    """What it said last."""
    silent_seconds: float
    """How long ago that, or a sign of life, was."""


@dataclass(frozen=True, kw_only=True)
class GatewaySeen:
    """One gateway."""

    name: str
    demand: DemandReport
    num_waiting: int
    oldest_seconds: float


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Everything at one moment."""

    now: float
    types: Sequence[EngineType]
    ordered: Mapping[str, int]
    """Replicas that were asked for, by type."""
    replicas: Sequence[ReplicaSeen]
    gateways: Sequence[GatewaySeen]
    """Those that are heard."""
    num_gateways: int = 1
    """Those that there are."""

    def of_type(self, name: str, *statuses: Status) -> list[ReplicaSeen]:
        """Replicas of a type in one of these states."""
        return [r for r in self.replicas if r.engine_type == name and r.status in statuses]

    @property
    def num_waiting(self) -> int:
        """Requests that wait, in gateways and engines."""
        engines = sum(r.state.sequences.waiting for r in self.replicas if r.state)
        return engines + sum(gateway.num_waiting for gateway in self.gateways)


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """What should be."""

    replicas: Mapping[str, int]
    """By type; what is not named stays as it is."""
    reason: str = ""
    victims: tuple[str, ...] = ()
    """Replicas that go; where none are named, those go that have least to finish."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Parts of the traffic, by type; empty: gateways choose alone."""


class Scaler(Protocol):
    """Decides how many replicas there are."""

    name: str
    """As on the command line."""
    period_seconds: float
    """How often it is asked."""
    is_prophet: bool
    """It knows the trace, and its replicas start at once: no one could do that."""
    has_deadlines: bool
    """Whether requests are refused that would be late. Those that scale by queues let them wait,
    as engines do without an SLO: they would see no queue."""

    def begin(self) -> Mapping[str, int]:
        """Return with how many replicas it begins; these are ready."""
        ...

    def decide(self, seen: Observation) -> Scaled:
        """Decide."""
        ...
