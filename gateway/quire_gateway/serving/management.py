"""The management port: probes, metrics, and the fleet as the gateway sees it.

It is not for clients: it asks for no key, and names services, keys and engines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from math import isfinite

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.errors import ApiError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.port import SharedBounds
from quire_gateway.http.request import Request
from quire_gateway.http.tls import Certificate
from quire_gateway.serving.demand_report import DemandReport
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.gateway import JSON, answer_probe
from quire_gateway.serving.metrics import GatewayMetrics, family
from quire_gateway.serving.service import Service

FLEET_SCHEMA_VERSION = 1
_MAX_CONNECTIONS = 64
_MAX_BODY_BYTES = 4096


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
    is_leaving: bool
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
    num_gateways: int
    """Those that share the limits of keys, this one included."""
    demand: DemandReport
    engines: list[EngineReport]


class FleetReport(msgspec.Struct, kw_only=True):
    """All that a gateway sees, for operators and people."""

    schema_version: int = FLEET_SCHEMA_VERSION
    gateway: str
    services: list[ServiceReport]


def management_bounds(reader_stall_seconds: float) -> SharedBounds:
    """Return the bounds of its port."""
    return SharedBounds(
        max_connections=_MAX_CONNECTIONS,
        max_body_bytes=_MAX_BODY_BYTES,
        max_total_body_bytes=_MAX_CONNECTIONS * _MAX_BODY_BYTES,
        reader_stall_seconds=reader_stall_seconds,
    )


async def _nothing() -> None:
    """Where one process does all, all is counted already."""


class Management:
    """Answers on the management port.

    Parameters
    ----------
    gather
        Waited for before what was counted is told: other processes count, too.
    certificate
        What clients are shown; None without TLS.
    """

    def __init__(
        self,
        fleet: Fleet,
        metrics: GatewayMetrics,
        *,
        name: str,
        stale_seconds: float,
        is_ready: Callable[[], bool],
        routing_problem: Callable[[], str],
        gather: Callable[[], Awaitable[None]] = _nothing,
        certificate: Certificate | None = None,
    ) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._name = name
        self._stale_seconds = stale_seconds
        self._is_ready = is_ready
        self._routing_problem = routing_problem
        self._gather = gather
        self._certificate = certificate
        self._loop = asyncio.get_running_loop()
        metrics.watch(self._families)

    async def answer(self, client: ClientConnection, request: Request) -> None:
        """Answer one request."""
        path = request.target.partition(b"?")[0].decode("latin-1")
        if request.method != b"GET":
            client.respond_error(ApiError(405, "Only GET is taken here.", reason="wrong_method"))
        elif path in ("/healthz", "/readyz"):
            problem = self._routing_problem()
            answer_probe(client, path, is_ready=self._is_ready(), problem=problem)
        elif path == "/metrics":
            kind = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
            await self._gather()
            client.respond(200, kind, self._metrics.page())
        elif path == "/fleet":
            await self._gather()
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
            num_gateways=service.document.num_gateways,
            demand=service.arrivals.report(now),
            engines=[self._report_engine(one, now) for one in service.endpoints],
        )

    def _report_engine(self, endpoint: Endpoint, now: float) -> EngineReport:
        return EngineReport(
            address=endpoint.address,
            accelerator=endpoint.accelerator,
            is_eligible=endpoint.is_eligible(now, self._stale_seconds),
            is_leaving=endpoint.is_leaving,
            silent_seconds=now - endpoint.heard_at,
            num_failures=endpoint.num_failures,
            in_flight=endpoint.num_in_flight,
            state=endpoint.state,
        )

    def _families(self) -> Iterator[Metric]:
        names = (
            "queued_requests",
            "queued_blocks",
            "engines",
            "bad_states",
            "in_flight_requests",
            "gateways",
            "arrivals",
            "client_retries",
            "promises",
        )
        made = {name: family(name) for name in names}
        for service in self._fleet.services.values():
            for taken in ("refused", "corrected"):
                count = service.bad_states[taken]
                made["bad_states"].add_metric((service.label, taken), count)
        for one in self.report().services:
            for labels, name, value in _samples(one):
                made[name].add_metric((f"{one.namespace}/{one.name}", *labels), value)
        yield from made.values()
        if self._certificate is not None and isfinite(self._certificate.valid_until):
            until = family("tls_certificate_expiry_timestamp_seconds")
            until.add_metric((), self._certificate.valid_until)
            yield until


def _samples(service: ServiceReport) -> Iterator[tuple[tuple[str, ...], str, float]]:
    """Labels besides the service's, the metric's name, and its value."""
    for priority, queue in service.queue.items():
        yield (priority,), "queued_requests", queue.waiting
    yield (), "queued_blocks", service.queued_blocks
    num_eligible = sum(engine.is_eligible for engine in service.engines)
    yield ("yes",), "engines", num_eligible
    yield ("no",), "engines", len(service.engines) - num_eligible
    yield (), "in_flight_requests", sum(engine.in_flight for engine in service.engines)
    yield (), "gateways", service.num_gateways
    demand = service.demand
    yield (), "arrivals", sum(demand.arrivals)
    yield (), "client_retries", demand.num_retries
    for promise, kept in (
        ("first_token", demand.first_token),
        ("output_token", demand.output_token),
    ):
        yield (promise, "yes"), "promises", kept.met
        yield (promise, "no"), "promises", kept.missed
