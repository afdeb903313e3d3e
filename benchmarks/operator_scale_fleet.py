"""Who answers for the engines and the gateway of many services, and the services themselves."""

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import msgspec
from aiohttp import web

from hack.cluster.cluster import Cluster
from quire_gateway.serving.arrivals import OUTPUT_BOUNDS, PROMPT_BOUNDS
from quire_operator.planner.engine_flags import thresholds
from quire_operator.planner.names import ENGINE_PORT, ROLE_LABEL, SERVICE_LABEL
from quire_operator.planner.network_paths import GATEWAY_MANAGEMENT_PORT
from quire_operator.reconciling.scaling_reports import SCHEMA_VERSION
from quire_operator.resource.reading import read
from tests.api.servers import SIMULATED, RunningServer
from tests.cluster.services import Body, service

_PODS = "/api/v1/pods"


def service_of(index: int, *, is_scaling: bool) -> Body:
    """One of the services."""
    tolerations = [{"operator": "Exists"}]
    accelerators = [{"name": "cpu", "pod": {"tolerations": tolerations}}]
    # none of them asks for more: what is measured is what it costs to look
    scaling = {"mode": "Auto" if is_scaling else "External"}
    return service(name_of(index), accelerators=accelerators, replicas=1, scaling=scaling)


def name_of(index: int) -> str:
    """Its name."""
    return f"chat-{index:04}"


@contextmanager
def responder(fleet: "Fleet") -> Iterator[Counter[str]]:
    """Answers for all engines, and for the gateway; counts what it is asked."""
    asked: Counter[str] = Counter()
    body = json.dumps(fleet.state).encode()

    async def answer(request: web.BaseRequest) -> web.Response:
        asked[f"{request.method} {request.path}"] += 1
        if request.path == "/fleet":
            return web.json_response(fleet.tell())
        return web.Response(body=body, content_type="application/json")

    loop = asyncio.new_event_loop()

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        for port in (ENGINE_PORT, GATEWAY_MANAGEMENT_PORT):
            await web.TCPSite(runner, "0.0.0.0", port).start()
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _limits() -> bytes:
    return msgspec.json.encode(thresholds(read(service_of(0, is_scaling=False))))


class Fleet:
    """What a gateway tells of services that nobody asks, with the engines that there are."""

    def __init__(self, num_services: int) -> None:
        with RunningServer(*SIMULATED) as engine:
            self.state: Body = httpx.get(f"{engine.url}/state").json()
        self.state["thresholds"] = json.loads(_limits())
        self._num_services = num_services
        self._pods: dict[str, tuple[str, str]] = {}
        """Service and address."""
        self._began = time.monotonic()

    def follow(self, cluster: Cluster) -> None:
        """Watch engines' pods until the cluster ends."""
        with contextlib.suppress(httpx.TransportError), connect(cluster) as client:
            for kind, pod in watch_objects(client, _PODS, labelSelector=f"{ROLE_LABEL}=engine"):
                metadata, address = pod["metadata"], pod.get("status", {}).get("podIP")
                self._pods.pop(metadata["name"], None)
                if address and kind != "DELETED":
                    self._pods[metadata["name"]] = metadata["labels"][SERVICE_LABEL], address

    def tell(self) -> Body:
        """The answer to `/fleet`."""
        engines = defaultdict(list)
        for service_name, address in list(self._pods.values()):
            seen = {"silent_seconds": 0.1, "state": self.state}
            engines[service_name].append({"address": f"{address}:{ENGINE_PORT}"} | seen)
        demand = {
            "seconds": time.monotonic() - self._began,
            "prompt_bounds": list(PROMPT_BOUNDS),
            "output_bounds": list(OUTPUT_BOUNDS),
            "arrivals": [0] * (len(PROMPT_BOUNDS) + 1),
            "ended": [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in range(len(PROMPT_BOUNDS) + 1)],
        }
        names = map(name_of, range(self._num_services))
        services = [
            {"namespace": "default", "name": one, "demand": demand, "engines": engines[one]}
            for one in names
        ]
        return {"schema_version": SCHEMA_VERSION, "gateway": "gateway", "services": services}


def watch_objects(client: httpx.Client, path: str, **query: str) -> Iterator[tuple[str, Body]]:
    """What becomes of objects, from now on or from `resourceVersion`."""
    with client.stream("GET", path, params={"watch": "true"} | query, timeout=None) as stream:
        for line in stream.iter_lines():
            event = json.loads(line)
            yield event["type"], event["object"]


def connect(cluster: Cluster) -> httpx.Client:
    """A client of the API server, as the cluster's administrator."""
    pair = cluster.authority.issue("quire-admin", "quire-admin", group="system:masters")
    context = ssl.create_default_context(cafile=str(cluster.authority.own.certificate))
    context.load_cert_chain(pair.certificate, pair.key)
    server = f"https://127.0.0.1:{cluster.config.ports.api}"
    return httpx.Client(base_url=server, verify=context, timeout=60)
