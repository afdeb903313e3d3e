"""The gateway follows a real API server: services and engines that come and go, and its faults.

EndpointSlices may not name addresses of the loopback interface: on the way to the gateway, one that
is nobody's becomes this machine's.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hack.cluster.cluster import Cluster
from quire_gateway import rbac
from quire_gateway.routing.cluster_objects import SLICES_SELECTOR
from quire_operator.planner.documents import routing_map
from quire_operator.planner.network import services
from quire_operator.planner.observed import Observed
from quire_operator.planner.settings import GatewayPlace
from quire_operator.resource.reading import read
from tests.api.gateways import GATEWAY, RunningGateway
from tests.api.servers import SIMULATED, RunningServer, wait_until
from tests.cluster.faulty_api import FaultyApi
from tests.cluster.services import service
from tests.unit.control.builders import SETTINGS, gateways

SYSTEM, PLACE = "quire-gateway-system", "routed"
SOMEWHERE, HERE = b"192.0.2.1", b"127.0.0.1"
COMPLETIONS = "/v1/completions"

Body = dict[str, Any]


class Routed(RunningGateway):
    """A gateway that follows a cluster."""

    def __init__(self, kubeconfig: Path, log: Path, *flags: str) -> None:
        self.log = log
        always = ("--kubernetes", "--management-port", "0", "--log-format", "text")
        RunningServer.__init__(
            self, *always, *flags, program=GATEWAY, env={"KUBECONFIG": str(kubeconfig)}, stderr=log
        )

    def metric(self, name: str) -> str:
        """The value of a metric without labels."""
        page = self.manage("/metrics").text
        return next(line.split()[1] for line in page.splitlines() if line.startswith(f"{name} "))

    def knows(self, name: str = "chat") -> bool:
        """Whether it has a service of this name."""
        return any(one["name"] == name for one in self.manage("/fleet").json()["services"])

    def ask(self, model: str = "chat", **changes: Any) -> httpx.Response:
        """A short completion."""
        body = {"model": model, "prompt": "Once", "max_tokens": 4} | changes
        return self.post(COMPLETIONS, body)

    def addresses(self, name: str = "chat") -> set[tuple[str, bool]]:
        """Where it knows engines, and whether requests go there."""
        if not self.knows(name):
            return set()
        engines = self.fleet(name)["engines"]
        return {(one["address"].rpartition(":")[2], one["is_eligible"]) for one in engines}


@pytest.fixture(scope="module")
def engines() -> Iterator[list[RunningServer]]:
    flags = ("--served-model-name", "chat")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RunningServer(*SIMULATED, *flags)) for _ in range(2)]


@pytest.fixture(scope="module")
def api(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyApi]:
    for name in (SYSTEM, PLACE):
        api_cluster.api.call("create", "namespace", name)
    api_cluster.api.apply(*rbac.objects(SYSTEM))
    user = f"system:serviceaccount:{SYSTEM}:{rbac.NAME}"
    may = ("auth", "can-i", "watch", "configmaps", "--all-namespaces", f"--as={user}")
    wait_until(lambda: api_cluster.api.run(*may).returncode == 0)
    server = f"https://127.0.0.1:{api_cluster.config.ports.api}"
    folder = tmp_path_factory.mktemp("gateway")
    with FaultyApi(api_cluster.authority, server, user, folder) as faulty:
        faulty.translate = lambda data: data.replace(SOMEWHERE, HERE)
        yield faulty
    api_cluster.api.call("delete", "clusterroles,clusterrolebindings", rbac.NAME)
    api_cluster.api.call("delete", "namespace", SYSTEM, PLACE, "--timeout=120s")


@pytest.fixture(scope="module")
def gateway(api: FaultyApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    log = tmp_path_factory.mktemp("gateway-log") / "gateway.log"
    with Routed(api.kubeconfig, log) as running:
        wait_until(running.is_ready)
        yield running


@pytest.fixture
def cluster(api_cluster: Cluster, api: FaultyApi, gateway: Routed) -> Iterator[Cluster]:
    """All is as before afterwards."""
    yield api_cluster
    api.be_well()
    both = "configmaps,endpointslices"
    role = "serving.quire.dev/role"
    api_cluster.api.call("delete", both, f"--selector={role}", f"--namespace={PLACE}")
    wait_until(lambda: not gateway.knows())


def observed(name: str = "chat", **spec: Any) -> Observed:
    body = service(name, PLACE, **spec)
    body["metadata"] |= {"uid": "u", "generation": 1}
    return Observed(service=read(body), root_secret=b"s" * 32)


def document(name: str = "chat", changes: Body | None = None, **spec: Any) -> Body:
    """A service's routing document, as the operator writes it, with these changes."""
    body: Body = routing_map(observed(name, **spec), SETTINGS)
    content = json.loads(body["data"]["routing.json"]) | (changes or {})
    return body | {"data": {"routing.json": json.dumps(content)}}


def engine_slice(
    engine: RunningServer, number: int, *, name: str = "chat", **conditions: bool
) -> Body:
    """Where an engine is, as the cluster's controller writes it."""
    labels = {
        "kubernetes.io/service-name": f"{name}-engines",
        "endpointslice.kubernetes.io/managed-by": "test",
        "serving.quire.dev/role": "engines",
    }
    port = int(engine.url.rpartition(":")[2])
    pod = {"kind": "Pod", "name": f"{name}-l4-5d-{number}", "uid": f"{name}-{number}"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": PLACE, "name": f"{name}-{number}", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [SOMEWHERE.decode()], "conditions": conditions, "targetRef": pod}
        ],
    }


def port_of(engine: RunningServer) -> str:
    return engine.url.rpartition(":")[2]


def wait_for(gateway: Routed, *eligible: RunningServer) -> None:
    """Until requests go to these engines, and it knows no others."""
    wanted = {(port_of(engine), True) for engine in eligible}
    wait_until(lambda: gateway.addresses() == wanted)


def test_a_service_and_its_engines_come_and_go(
    cluster: Cluster, gateway: Routed, engines: list[RunningServer]
) -> None:
    first, second = engines
    assert gateway.ask().status_code == 404
    cluster.api.apply(document(), engine_slice(first, 1, ready=True))
    wait_for(gateway, first)
    answer = gateway.ask()
    assert answer.status_code == 200, answer.text
    assert gateway.fleet()["engines"][0]["accelerator"] == "l4"

    cluster.api.apply(engine_slice(second, 2, ready=True))
    wait_for(gateway, first, second)
    cluster.api.call("delete", "endpointslice", "chat-1", f"--namespace={PLACE}")
    wait_for(gateway, second)
    assert gateway.ask().status_code == 200

    cluster.api.call("delete", "configmap", "chat-routing", f"--namespace={PLACE}")
    wait_until(lambda: gateway.ask().status_code == 404)


def test_an_engine_that_terminates_gets_nothing_new_and_ends_what_it_has(
    cluster: Cluster, gateway: Routed, engines: list[RunningServer]
) -> None:
    first, second = engines
    cluster.api.apply(document(), engine_slice(first, 1, ready=True))
    wait_for(gateway, first)
    body = {"model": "chat", "prompt": "Once", "max_tokens": 2000, "stream": True}
    with httpx.stream("POST", gateway.url + COMPLETIONS, json=body, timeout=60) as stream:
        text = stream.iter_text()
        begin = next(text)
        leaving = engine_slice(first, 1, ready=False, serving=True, terminating=True)
        cluster.api.apply(leaving, engine_slice(second, 2, ready=True))
        wait_until(
            lambda: gateway.addresses() == {(port_of(first), False), (port_of(second), True)}
        )
        before = first.state().gateways
        assert [gateway.ask().status_code for _ in range(4)] == [200] * 4
        assert first.state().gateways == before
        cluster.api.call("delete", "endpointslice", "chat-1", f"--namespace={PLACE}")
        wait_for(gateway, second)
        assert (begin + "".join(text)).endswith("data: [DONE]\n\n")


def test_a_broken_document_changes_nothing(
    cluster: Cluster, gateway: Routed, engines: list[RunningServer]
) -> None:
    cluster.api.apply(document(), engine_slice(engines[0], 1, ready=True))
    wait_for(gateway, engines[0])
    broken: list[Body] = [{"schema_version": 0}, {"model_names": []}, {"namespace": "default"}]
    for changes in broken:
        cluster.api.apply(document(changes=changes))
        wait_until(lambda: gateway.metric("quire_gateway_routing_stale") == "1.0")
        assert gateway.ask().status_code == 200
        cluster.api.apply(document())
        wait_until(lambda: gateway.metric("quire_gateway_routing_stale") == "0.0")
    assert "upgrade the gateway and the operator" in gateway.log.read_text()


def test_without_the_api_server_all_stays_and_what_changed_is_found_afterwards(
    cluster: Cluster, gateway: Routed, api: FaultyApi, engines: list[RunningServer]
) -> None:
    first, second = engines
    cluster.api.apply(document(), engine_slice(first, 1, ready=True))
    wait_for(gateway, first)
    api.go_away()
    wait_until(lambda: gateway.metric("quire_gateway_routing_source_up") == "0.0")
    assert gateway.manage("/readyz").status_code == 200
    assert gateway.manage("/healthz").json()["problem"]
    assert gateway.ask().status_code == 200

    cluster.api.call("delete", "endpointslice", "chat-1", f"--namespace={PLACE}")
    cluster.api.apply(document("other"), engine_slice(second, 2, ready=True))
    api.come_back()
    wait_for(gateway, second)
    wait_until(lambda: gateway.knows("other"))
    assert gateway.metric("quire_gateway_routing_source_up") == "1.0"
    assert "problem" not in gateway.manage("/healthz").json()


def test_a_gateway_that_has_not_seen_all_is_not_ready(
    cluster: Cluster, api: FaultyApi, engines: list[RunningServer], tmp_path: Path
) -> None:
    cluster.api.apply(document(), engine_slice(engines[0], 1, ready=True))
    api.refuse(lambda method, path: 503 if "endpointslices" in path else None)
    with Routed(api.kubeconfig, tmp_path / "gateway.log", "--namespaces", PLACE) as late:
        wait_until(lambda: "503" in late.log.read_text())
        assert late.get("/readyz").status_code == 503
        refused = late.ask()
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        api.be_well()
        wait_until(late.is_ready)
        wait_for(late, engines[0])
        assert late.ask().status_code == 200


def test_cut_watches_and_lost_versions_lose_nothing(
    cluster: Cluster, gateway: Routed, api: FaultyApi, engines: list[RunningServer]
) -> None:
    first, second = engines
    cluster.api.apply(document(), engine_slice(first, 1, ready=True))
    wait_for(gateway, first)
    seen: set[str] = set()

    def is_gone(method: str, path: str) -> int | None:
        """The first request for each kind is told that its version is too old."""
        if path in seen:
            return None
        seen.add(path)
        return 410

    api.refuse(is_gone)
    api.cut()
    cluster.api.call("delete", "endpointslice", "chat-1", f"--namespace={PLACE}")
    cluster.api.apply(engine_slice(second, 2, ready=True))
    wait_for(gateway, second)
    wait_until(lambda: api.num_refused == 2)
    assert gateway.ask().status_code == 200


def test_keys_limits_and_the_number_of_gateways_come_with_the_document(
    cluster: Cluster, gateway: Routed, engines: list[RunningServer]
) -> None:
    key = {
        "name": "team",
        "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "requests_per_minute": 3,
    }
    three = gateways("10.0.0.1", "10.0.0.2", "10.0.0.3")
    settings = replace(SETTINGS, gateway=GatewayPlace(namespace=SYSTEM, selector=()))
    entrance = [
        one
        for one in services(replace(observed(), gateways=three), settings)
        if one["kind"] == "EndpointSlice"
    ]
    cluster.api.apply(document(changes={"api_keys": [key]}), engine_slice(engines[0], 1), *entrance)
    wait_for(gateway, engines[0])
    hello = {"authorization": "Bearer hello"}
    body = {"model": "chat", "prompt": "Once", "max_tokens": 4}

    assert gateway.ask().status_code == 401
    wait_until(lambda: gateway.fleet()["num_gateways"] == 3)
    asked = [gateway.post(COMPLETIONS, body, headers=hello).status_code for _ in range(2)]
    assert asked == [200, 429]


def test_it_may_watch_and_nothing_else(cluster: Cluster, api: FaultyApi) -> None:
    user = f"--as=system:serviceaccount:{SYSTEM}:{rbac.NAME}"
    for what in (("get", "secrets"), ("list", "pods"), ("patch", "configmaps"), ("list", "nodes")):
        ran = cluster.api.run("auth", "can-i", *what, f"--namespace={PLACE}", user)
        assert ran.stdout.strip() == "no", what


def test_the_clusters_own_slices_are_found_by_the_labels_of_their_service(
    cluster: Cluster,
) -> None:
    headless = services(observed("labelled"), SETTINGS)[0]
    cluster.api.apply(headless)
    path = f"/apis/discovery.k8s.io/v1/namespaces/{PLACE}/endpointslices"
    selector = SLICES_SELECTOR.replace(" ", "%20")

    def is_found() -> bool:
        found = cluster.api.get(f"{path}?labelSelector={selector}") or {"items": []}
        names = [one["metadata"]["labels"]["kubernetes.io/service-name"] for one in found["items"]]
        return "labelled-engines" in names

    wait_until(is_found)
    cluster.api.call("delete", "service", "labelled-engines", f"--namespace={PLACE}")
