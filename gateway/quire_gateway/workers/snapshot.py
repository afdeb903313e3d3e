"""What the decider publishes: documents when they change, loads a few times a second."""

import msgspec

from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.figures import Figures
from quire_gateway.routing.access import Left
from quire_gateway.routing.document import RoutingDocument
from quire_gateway.serving.directory import ServiceKey
from quire_gateway.serving.service import Service

PUBLISH_SECONDS = 0.25


class Routing(msgspec.Struct, array_like=True):
    """Which services there are."""

    documents: tuple[RoutingDocument, ...]
    """The oldest first."""
    is_complete: bool
    """Whether all that there is has been seen once."""


class EngineLoad(msgspec.Struct, array_like=True, gc=False):
    """One engine."""

    address: str
    is_eligible: bool
    load: float
    """Share of its seats or blocks that is taken, whichever is more."""
    load_per_request: float


class ServiceLoad(msgspec.Struct, array_like=True):
    """One service."""

    service: ServiceKey
    max_model_len: int
    engines: list[EngineLoad]
    keys: list[Left] = []
    """What is left of the limits of keys that have used some."""


class Loads(msgspec.Struct, array_like=True):
    """All of them."""

    services: list[ServiceLoad]
    at: float
    """When: the event loop's time, which all processes of a machine share."""


routing_decoder = msgspec.msgpack.Decoder(Routing)
loads_decoder = msgspec.msgpack.Decoder(Loads)
encoder = msgspec.msgpack.Encoder()


def load_of(key: ServiceKey, service: Service, now: float, stale_seconds: float) -> ServiceLoad:
    """Return what is published of a service."""
    engines = [_engine_load(one, now, stale_seconds) for one in service.endpoints]
    return ServiceLoad(key, service.max_model_len, engines, service.access.left(now))


def _engine_load(endpoint: Endpoint, now: float, stale_seconds: float) -> EngineLoad:
    figures = endpoint.figures
    is_eligible = endpoint.is_eligible(now, stale_seconds)
    if figures is None:
        return EngineLoad(endpoint.address, is_eligible, 0.0, 1.0)
    num_seats = max(figures.num_requests + figures.num_free_seats, 1)
    return EngineLoad(
        endpoint.address,
        is_eligible,
        max(figures.num_requests / num_seats, _share_of_blocks(figures)),
        1.0 / num_seats,
    )


def _share_of_blocks(figures: Figures) -> float:
    return 1.0 - figures.free_blocks / figures.num_blocks if figures.num_blocks else 1.0
