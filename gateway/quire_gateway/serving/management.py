"""The management port: probes, metrics, and the fleet as the gateway sees it.

It is not for clients: it asks for no key, and names services, keys and engines.
"""

import asyncio
from collections.abc import Callable, Iterator

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.errors import ApiError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.request import Request
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.gateway import JSON, answer_probe
from quire_gateway.serving.metrics import GatewayMetrics, gauge
from quire_gateway.serving.service import Service

FLEET_SCHEMA_VERSION = 1


class QueueReport(msgspec.Struct, kw_only=True):
    """Who waits in the gateway, of one class."""

    waiting: int
    oldest_seconds: float


class EngineReport(msgspec.Struct, kw_only=True):
    """One engine."""

    address: str
    accelerator: str
    is_eligible: bool
    """Whether requests are sent there."""
    silent_seconds: float
    num_failures: int
    in_flight: int
    """Requests of this gateway."""
    state: EngineState | None


class ServiceReport(msgspec.Struct, kw_only=True):
    """One service."""

    namespace: str
    name: str
    queue: dict[str, QueueReport]
    queued_blocks: float
    engines: list[EngineReport]


class FleetReport(msgspec.Struct, kw_only=True):
    """All that a gateway sees, for operators and people."""

    schema_version: int = FLEET_SCHEMA_VERSION
    gateway: str
    services: list[ServiceReport]


class Management:
    """Answers on the management port."""

    def __init__(
        self,
        fleet: Fleet,
        metrics: GatewayMetrics,
        *,
        name: str,
        stale_seconds: float,
        is_ready: Callable[[], bool],
    ) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._name = name
        self._stale_seconds = stale_seconds
        self._is_ready = is_ready
        self._loop = asyncio.get_running_loop()
        metrics.watch(self._gauges)

    async def answer(self, client: ClientConnection, request: Request) -> None:
        """Answer one request."""
        path = request.target.partition(b"?")[0].decode("latin-1")
        if request.method != b"GET":
            client.respond_error(ApiError(405, "Only GET is taken here.", reason="wrong_method"))
        elif path in ("/healthz", "/readyz"):
            answer_probe(client, path, is_ready=self._is_ready())
        elif path == "/metrics":
            kind = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
            client.respond(200, kind, self._metrics.page())
        elif path == "/fleet":
            client.respond(200, JSON, msgspec.json.encode(self.report()))
        else:
            message = "There are /healthz, /readyz, /metrics and /fleet."
            client.respond_error(ApiError(404, message, reason="unknown_route"))

    def report(self) -> FleetReport:
        """The fleet now."""
        services = [self._report_service(one) for one in self._fleet.services.values()]
        return FleetReport(gateway=self._name, services=services)

    def _report_service(self, service: Service) -> ServiceReport:
        now = self._loop.time()
        arrivals: dict[str, list[float]] = {"interactive": [], "background": []}
        for one in service.queue:
            arrivals["background" if one.is_background else "interactive"].append(one.arrived_at)
        return ServiceReport(
            namespace=service.document.namespace,
            name=service.document.name,
            queue={
                name: QueueReport(waiting=len(ats), oldest_seconds=now - min(ats, default=now))
                for name, ats in arrivals.items()
            },
            queued_blocks=service.queue.total_cost,
            engines=[self._report_engine(one, now) for one in service.endpoints],
        )

    def _report_engine(self, endpoint: Endpoint, now: float) -> EngineReport:
        return EngineReport(
            address=endpoint.address,
            accelerator=endpoint.accelerator,
            is_eligible=endpoint.is_eligible(now, self._stale_seconds),
            silent_seconds=now - endpoint.heard_at,
            num_failures=endpoint.num_failures,
            in_flight=endpoint.num_in_flight,
            state=endpoint.state,
        )

    def _gauges(self) -> Iterator[Metric]:
        queued = gauge("queued_requests", "Requests that wait here.", "service", "priority")
        engines = gauge("engines", "Engines, by whether requests go there.", "service", "eligible")
        flying = gauge("in_flight_requests", "Requests at engines.", "service")
        for one in self.report().services:
            for priority, queue in one.queue.items():
                queued.add_metric((one.name, priority), queue.waiting)
            num_eligible = sum(engine.is_eligible for engine in one.engines)
            engines.add_metric((one.name, "yes"), num_eligible)
            engines.add_metric((one.name, "no"), len(one.engines) - num_eligible)
            flying.add_metric((one.name,), sum(engine.in_flight for engine in one.engines))
        yield from (queued, engines, flying)
