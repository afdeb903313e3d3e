"""TLS is turned on and off at gateways, as a rollout does it, while clients ask through Envoy.

    clients ── Envoy (Contour tells it) ── gateways, old and new ── engine
                     │
    operator ── API server ── pods, as the Deployment's controller and the kubelet write them

EndpointSlices may not name addresses of the loopback interface: on the way to Contour, those that
are nobody's become this machine's.
"""

import asyncio
import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from hack.cluster.certificates import Authority
from hack.cluster.cluster import Cluster
from quire_operator.planner.names import GATEWAY_TLS_LABEL, ROLE_LABEL
from tests.api.gateways import RunningGateway, service
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until
from tests.cluster import services
from tests.cluster.contour import CLASS, USER, RunningContour, install_contour, uninstall_contour
from tests.cluster.faulty_api import FaultyApi
from tests.cluster.operators import SYSTEM, RunningOperator, free_port

SOMEWHERE, HERE = b"192.0.2.", b"127.0.0."
HOST = "models.example.com"
NUM_CLIENTS, PAUSE_SECONDS = 4, 0.005
CONNECTION = httpx.Limits(max_keepalive_connections=1)
GRACE = ("--drain-grace-seconds", "10")
"""In it the operator hears of the new gateway, and Envoy of what it writes; more than the chart's,
for a machine that has much else to do."""
FINALIZER = "test.quire.dev/kubelet"


@pytest.fixture
def contour(api_cluster: Cluster, tmp_path: Path) -> Iterator[RunningContour]:
    kinds = install_contour(api_cluster)
    server = f"https://127.0.0.1:{api_cluster.config.ports.api}"
    with FaultyApi(api_cluster.authority, server, USER, tmp_path) as api:
        api.translate = lambda data: data.replace(SOMEWHERE, HERE)
        with RunningContour(api_cluster, api.kubeconfig, tmp_path) as running:
            yield running
    uninstall_contour(api_cluster, kinds)


@dataclass
class Gateways:
    """The gateway's Deployment, its pods and their kubelet: a process for each pod."""

    cluster: Cluster
    engine: RunningServer
    folder: Path
    tls: tuple[str, ...]
    port: int = field(default_factory=free_port)
    running: dict[int, RunningGateway] = field(default_factory=dict)

    def add(self, number: int, *, is_tls: bool) -> None:
        """A pod is made, and becomes ready once its gateway listens."""
        labels = {ROLE_LABEL: "gateway", GATEWAY_TLS_LABEL: str(is_tls).lower()}
        metadata = {"namespace": SYSTEM, "name": f"gateway-{number}", "labels": labels}
        self.cluster.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata | {"finalizers": [FINALIZER]},
                "spec": {"containers": [{"name": "gateway", "image": "gateway:1"}]},
            }
        )
        documents = [service([self.engine], host=HOST, is_public=True)]
        flags = ("--host", f"127.0.0.{number}", "--port", str(self.port), *GRACE)
        gateway = RunningGateway(
            self.folder / f"{number}.json", documents, *flags, *(self.tls if is_tls else ())
        )
        self.running[number] = gateway.__enter__()
        wait_until(lambda: gateway.manage("/readyz").status_code == 200)
        address = f"{SOMEWHERE.decode()}{number}"
        self._patch(
            number,
            {
                "status": {
                    "phase": "Running",
                    "podIP": address,
                    "podIPs": [{"ip": address}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
            },
            "--subresource=status",
        )

    def begin_to_end(self, number: int) -> None:
        """A pod is deleted, and its gateway is told."""
        here = f"--namespace={SYSTEM}"
        self.cluster.api.call("delete", "pod", f"gateway-{number}", here, "--wait=false")
        self.running[number].stop(signal.SIGTERM)

    def wait_for_end(self, number: int) -> None:
        """The gateway has ended, and its pod is gone."""
        gateway = self.running.pop(number)
        gateway.process.wait(timeout=120)
        gateway.kill()
        self._patch(number, {"metadata": {"finalizers": None}})

    def end(self) -> None:
        """End all."""
        for number in list(self.running):
            self.begin_to_end(number)
        for number in list(self.running):
            self.running[number].kill()
            self.wait_for_end(number)

    def _patch(self, number: int, patch: Any, *flags: str) -> None:
        self.cluster.api.call(
            *("patch", "pod", f"gateway-{number}", f"--namespace={SYSTEM}", "--type=merge"),
            *(f"--patch={json.dumps(patch)}", *flags),
        )


class Load:
    """Clients that ask one thing after the other, over connections that they keep."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = False
        self.counts: Counter[str] = Counter()

    async def during(self, work: Callable[[], None]) -> None:
        """Ask while something is done."""
        async with asyncio.TaskGroup() as group:
            for number in range(NUM_CLIENTS):
                group.create_task(self._ask_on(has_answer=number == 0))
            try:
                for one in (self.wait_for_more, work, self.wait_for_more):
                    await asyncio.to_thread(one)
            finally:
                self._is_over = True

    def wait_for_more(self, count: int = 100) -> None:
        """Wait until so many more have been answered, or not."""
        before = self.counts.total()
        wait_until(lambda: self.counts.total() >= before + count)

    async def _ask_on(self, *, has_answer: bool) -> None:
        headers = {"host": HOST}
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 60, "stream": True}
        async with httpx.AsyncClient(timeout=60, limits=CONNECTION, headers=headers) as client:
            while not self._is_over:
                try:
                    if has_answer:
                        answer = await client.post(f"{self._url}/v1/completions", json=body)
                        is_whole = answer.text.endswith("data: [DONE]\n\n")
                    else:
                        answer = await client.get(f"{self._url}/v1/models")
                        is_whole = True
                    good = answer.status_code == 200 and is_whole
                    outcome = "answered" if good else f"{answer.status_code} {answer.text[-80:]}"
                except httpx.HTTPError as error:
                    outcome = repr(error)
                self.counts[outcome] += 1
                await asyncio.sleep(PAUSE_SECONDS)  # or nothing else would get on


def test_nobody_is_refused_while_tls_is_turned_on_and_off(
    api_cluster: Cluster,
    kubeconfig: Path,
    contour: RunningContour,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = Authority(tmp_path / "authority")
    authority.create()
    pair = authority.issue("gateway", "gateway", hosts=["gateway.example"])
    files = (shutil.copy(pair.certificate, tmp_path), shutil.copy(pair.key, tmp_path))
    tls = ("--tls-certificate-file", str(files[0]), "--tls-key-file", str(files[1]))
    with ExitStack() as stack:
        engine = stack.enter_context(RunningServer(*SIMULATED))
        gateways = Gateways(api_cluster, engine, tmp_path, tls)
        stack.callback(gateways.end)
        always = ("--lease-seconds=6", "--engine-image=engine:1", "--scale-seconds=0")
        flags = (*always, f"--gateway-namespace={SYSTEM}", f"--gateway-port={gateways.port}")
        first = RunningOperator(kubeconfig, tmp_path / "operator.log", *flags)
        stack.callback(first.kill)
        first.wait_until_ready()
        gateways.add(10, is_tls=False)
        ingress = {"host": HOST, "className": CLASS}
        services.make(api_cluster, namespace, access={"public": True}, ingress=ingress)
        wait_until(lambda: is_reached(contour.url))

        def turn_on() -> None:
            gateways.add(20, is_tls=True)
            gateways.begin_to_end(10)
            # the next operator is there before this one is told to end
            log = tmp_path / "next.log"
            second = stack.enter_context(RunningOperator(kubeconfig, log, *flags, "--gateway-tls"))
            second.wait_until_ready()
            assert first.stop() == 0
            gateways.wait_for_end(10)

        def turn_off() -> None:
            gateways.add(30, is_tls=False)
            gateways.begin_to_end(20)  # and the operator still wants TLS
            gateways.wait_for_end(20)

        for change, port in ((turn_on, "https"), (turn_off, "http")):
            load = Load(contour.url)
            asyncio.run(load.during(change))
            with capsys.disabled():
                print(f"\n{change.__name__} while clients ask: {dict(load.counts)}")
            assert load.counts.keys() == {"answered"}
            assert led_to(api_cluster, namespace) == port


def led_to(cluster: Cluster, namespace: str) -> str:
    """The port of the service's address that Envoy leads to."""
    ingress = cluster.api.get(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses/chat")
    path = ingress["spec"]["rules"][0]["http"]["paths"][0]
    name: str = path["backend"]["service"]["port"]["name"]
    return name


def is_reached(url: str) -> bool:
    """Whether Envoy leads to a gateway."""
    try:
        return httpx.get(f"{url}/v1/models", headers={"host": HOST}, timeout=60).is_success
    except httpx.TransportError:
        return False
