"""What gateways said at one moment: `/fleet` and, of `/metrics`, the times to the first byte.

Gateways of other versions may say more; what they do not say is not shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from quire_engine.protocol.messages import BlockCounts
from quire_engine.protocol.state import PressureReport, SequenceCounts

ServiceKey = tuple[str, str]
"""Namespace and name."""
Buckets = Mapping[float, float]
"""Counts of a histogram, by upper bounds."""
FIRST_BYTE = "quire_gateway_first_byte_seconds_bucket"


class StateTold(msgspec.Struct, kw_only=True):
    """What is shown of an engine's state."""

    schema_version: int
    sequence: int = 0
    is_ready: bool = False
    is_draining: bool = False
    blocks: BlockCounts | None = None
    sequences: SequenceCounts | None = None
    pressure: PressureReport | None = None
    num_preemptions: int = 0
    num_scheduled_tokens: int | None = None


class EngineTold(msgspec.Struct, kw_only=True):
    """One engine."""

    address: str
    accelerator: str = ""
    is_eligible: bool = False
    is_leaving: bool = False
    silent_seconds: float = 0.0
    in_flight: int = 0
    state: StateTold | None = None


class QueueTold(msgspec.Struct, kw_only=True):
    """Who waits in a gateway, of one class."""

    waiting: int
    oldest_seconds: float = 0.0


class Kept(msgspec.Struct, kw_only=True):
    """How a promise was kept."""

    met: int = 0
    missed: int = 0


class DemandTold(msgspec.Struct, kw_only=True):
    """Counts since a gateway began."""

    seconds: float = 0.0
    arrivals: list[int] = []
    output_tokens: int = 0
    refusals: dict[str, int] = {}
    first_token: Kept = msgspec.field(default_factory=Kept)


class ServiceTold(msgspec.Struct, kw_only=True):
    """One service."""

    namespace: str
    name: str
    queue: dict[str, QueueTold] = {}
    demand: DemandTold = msgspec.field(default_factory=DemandTold)
    engines: list[EngineTold] = []

    @property
    def key(self) -> ServiceKey:
        """Namespace and name."""
        return self.namespace, self.name


class FleetTold(msgspec.Struct, kw_only=True):
    """What one gateway sees."""

    gateway: str = ""
    services: list[ServiceTold] = []


@dataclass(frozen=True, kw_only=True)
class GatewayLook:
    """One gateway."""

    fleet: FleetTold
    first_byte: Mapping[ServiceKey, Buckets] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Look:
    """All gateways at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    gateways: tuple[GatewayLook, ...]
    problems: tuple[str, ...] = ()
    """Of gateways that did not answer, while others did."""


def read_gateway(fleet: bytes, metrics: bytes) -> GatewayLook:
    """Read what a gateway answered.

    Raises
    ------
    msgspec.MsgspecError
        It is no gateway's.
    """
    told = msgspec.json.decode(fleet, type=FleetTold)
    return GatewayLook(fleet=told, first_byte=_first_byte(metrics.decode()))


def _first_byte(text: str) -> dict[ServiceKey, dict[float, float]]:
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in text.splitlines() if line.startswith(FIRST_BYTE)]
    found: dict[ServiceKey, dict[float, float]] = {}
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            namespace, _, name = sample.labels["service"].partition("/")
            bucket = found.setdefault((namespace, name), {})
            bucket[float(sample.labels["le"])] = sample.value
    return found
