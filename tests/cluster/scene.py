"""A fleet at work, read by a real Prometheus as the chart's monitors would have it.

Two simulated engines stand in place of the containers of two pods, a gateway sends them requests,
and the operator scales; a third engine fails whatever it is asked.
"""

import argparse
import base64
import hashlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from hack.chart.values import CHART
from hack.cluster.binaries import provide_programs
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.sizes import programs_of
from hack.cluster.temporary import temporary_cluster
from hack.observability.pictures import draw_boards
from quire_operator.planner.names import ROLE_LABEL, engine_selector
from tests.api.gateways import FakeEngines, FakeRequest, RunningGateway
from tests.api.promtool import find_promtool
from tests.api.servers import MODEL, RunningServer, wait_until
from tests.cluster.helm import Helm
from tests.cluster.operators import (
    SYSTEM,
    RunningOperator,
    free_port,
    install,
    root_secret,
    uninstall,
)
from tests.cluster.prometheus import Prometheus, scrape_config
from tests.cluster.services import apply
from tests.cluster.services import service as inference_service
from tests.unit.gateway.builders import document

Body = dict[str, Any]

SECONDS = 120
RULES = CHART / "files" / "alerts.yaml"
LABELS = "__meta_kubernetes_pod_label_serving_quire_dev_"
GPUS = {"l4": "NVIDIA-L4", "h100": "NVIDIA-H100-80GB-HBM3"}
_COSTS = {"l4": "0.80", "h100": "7.50"}
_ROOT = b"r" * 32
_KEY = "a-key-of-a-team"
_SHA256 = hashlib.sha256(_KEY.encode()).hexdigest()
_NETWORK = f"127.{20 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
"""Of engines, which all have the same port: another run beside this one has another."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What runs."""

    prometheus: Prometheus
    gateway: RunningGateway
    operator: RunningOperator
    engines: dict[str, RunningServer]
    targets: dict[str, dict[str, dict[str, str]]]
    """Addresses that are read by their role, and for each the labels of its pod."""


@contextmanager
def scene(
    cluster: Cluster,
    helm: Helm,
    program: Path,
    folder: Path,
    *,
    num_clients: int = 1,
    rules: Path = RULES,
    scrape: str = "250ms",
) -> Iterator[Scene]:
    """A fleet with so many clients, for as long as the block lasts."""
    kubeconfig = install(cluster)
    accelerators = [
        {"name": name, "products": [product], "costPerHour": _COSTS[name], "minReplicas": 1}
        for name, product in GPUS.items()
    ]
    body = inference_service("chat", accelerators=accelerators, engine={"maxNumSeqs": 16})
    assert apply(cluster, body).returncode == 0
    cluster.api.apply(root_secret(_ROOT))
    management = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        stack.callback(uninstall, cluster)
        flags = (
            "--resync-seconds=1",
            "--scale-seconds=1",
            f"--gateway-namespace={SYSTEM}",
            f"--gateway-urls=http://{management}",
        )
        log = folder / "operator.log"
        operator = stack.enter_context(RunningOperator(kubeconfig, log, *flags))
        tokens = _tokens(cluster, folder)
        failing = stack.enter_context(FakeEngines()).add(_hang_up)
        engines = {
            name: stack.enter_context(_engine(name, f"{_NETWORK}.{number}", tokens))
            for number, name in enumerate(GPUS, 1)
        }
        for name, engine in engines.items():
            _stand_in(cluster, name, urlsplit(engine.url).hostname or "")
        _stand_in_gateway(cluster)
        places = {name: _address(engine) for name, engine in engines.items()}
        gateway = stack.enter_context(
            _gateway(folder, [*places.items(), ("l4", urlsplit(failing.url).netloc)], management)
        )
        pod = {"pod": "one", "namespace": "quire-system"}
        targets: dict[str, dict[str, dict[str, str]]] = {
            "engine": {
                address: {
                    "pod": f"chat-{name}-0",
                    "namespace": "default",
                    "__meta_kubernetes_namespace": "default",
                    f"{LABELS}service": "chat",
                    f"{LABELS}accelerator": name,
                }
                for name, address in places.items()
            },
            "gateway": {management: pod},
            "operator": {f"127.0.0.1:{operator.port}": pod},
        }
        monitors = {
            one["metadata"]["name"].removeprefix("quire-"): one
            for one in helm.objects("--set=podMonitors.enabled=true")
            if one["kind"] == "PodMonitor"
        }
        jobs = [
            scrape_config(monitors[role], addresses)
            | {"scrape_interval": scrape, "scrape_timeout": scrape}
            for role, addresses in targets.items()
        ]
        prometheus = stack.enter_context(Prometheus(program, folder, jobs, rules))
        wait_until(lambda: gateway.num_eligible() == len(GPUS) + 1, seconds=SECONDS)
        stack.enter_context(Traffic(gateway.url, num_clients))
        yield Scene(
            prometheus=prometheus,
            gateway=gateway,
            operator=operator,
            engines=engines,
            targets=targets,
        )


class Traffic:
    """Requests of so many clients, each one after another, while the block lasts."""

    def __init__(self, url: str, num_clients: int) -> None:
        self._url = url
        self._num_clients = num_clients
        self._is_over = False
        self._pool = ThreadPoolExecutor(num_clients)

    def __enter__(self) -> Self:
        self._sent = [self._pool.submit(self._send, Random(n)) for n in range(self._num_clients)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        for sent in self._sent:
            sent.result()
        self._pool.shutdown()

    def _send(self, random: Random) -> None:
        with httpx.Client(base_url=self._url, timeout=300) as http:
            for number in count():
                if self._is_over:
                    return
                # every fifth has no key; every third is one that a library sends again
                headers = {"authorization": f"Bearer {_KEY}"} if number % 5 else {}
                headers |= {"x-stainless-retry-count": "1"} if number % 3 == 0 else {}
                if number % 4 == 1:
                    headers["x-quire-priority"] = "background"
                length = 8 if self._num_clients == 1 else random.choice([40, 150, 600])
                words = "Once " * (1 if self._num_clients == 1 else random.choice([50, 400, 1500]))
                body = {"model": MODEL, "prompt": words, "max_tokens": length, "stream": True}
                http.post("/v1/completions", json=body, headers=headers)


def _engine(name: str, host: str, tokens: Path) -> RunningServer:
    flags = ("--simulate", name, "--model-shape", MODEL, "--max-num-seqs=16")
    where = (f"--host={host}", "--port=8000", f"--internal-token-file={tokens}")
    return RunningServer(*flags, *where)


def _gateway(folder: Path, places: list[tuple[str, str]], management: str) -> RunningGateway:
    promises = {"slo_time_to_first_token_seconds": 60.0, "slo_time_per_output_token_seconds": 60.0}
    routed = document(
        model_names=[MODEL],
        engines=[{"address": address, "accelerator": name} for name, address in places],
        thresholds=document()["thresholds"] | promises,
        api_keys=[{"name": "team", "sha256": _SHA256}],
    )
    root = folder / "root"
    root.write_bytes(_ROOT)
    flags = (f"--root-secret-file={root}", f"--management-port={management.rpartition(':')[2]}")
    return RunningGateway(folder / "routing.json", [routed], *flags)


def _tokens(cluster: Cluster, folder: Path) -> Path:
    """What the operator lets a service's engines know it and the gateway by."""
    where = "/api/v1/namespaces/default/secrets/chat-internal"
    wait_until(lambda: cluster.api.get(where) is not None, seconds=SECONDS)
    path = folder / "tokens"
    path.write_bytes(base64.b64decode(cluster.api.get(where)["data"]["tokens"]))
    return path


def _address(engine: RunningServer) -> str:
    return urlsplit(engine.url).netloc


def _stand_in(cluster: Cluster, accelerator: str, address: str) -> None:
    """Say of an accelerator's pod what a node would, as if its container were at an address."""
    labels = ",".join(f"{k}={v}" for k, v in engine_selector("chat", accelerator).items())
    command = ("get", "pods", "--output=json", f"--selector={labels}")

    def pods() -> list[Body]:
        found: list[Body] = json.loads(cluster.api.call(*command))["items"]
        return found

    wait_until(lambda: bool(pods()), seconds=SECONDS)
    _write_status(cluster, pods()[0]["metadata"], address)


def _stand_in_gateway(cluster: Cluster) -> None:
    """A pod of a gateway, which services need to be Ready; the gateway itself is a process here."""
    metadata = {"namespace": SYSTEM, "name": "gateway", "labels": {ROLE_LABEL: "gateway"}}
    container = {"name": "main", "image": "gateway:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    cluster.api.apply(pod | {"spec": {"containers": [container]}})
    _write_status(cluster, metadata, "192.0.2.1")


def _write_status(cluster: Cluster, metadata: Body, address: str) -> None:
    kinds = ("PodScheduled", "Ready", "ContainersReady")
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, "status": "True"} for kind in kinds],
    }
    which = (f"pod/{metadata['name']}", f"--namespace={metadata['namespace']}")
    flags = ("--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}")
    cluster.api.call("patch", *which, *flags)


async def _hang_up(request: FakeRequest) -> None:
    request.writer.close()


def main() -> None:
    """Let a fleet work for some minutes, and draw all dashboards of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.scene")
    parser.add_argument("folder", type=Path, help="where pages and pictures go")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--clients", type=int, default=24)
    parsed = parser.parse_args()
    programs = provide_programs([*programs_of(Size.API), "helm"])
    found = find_promtool()
    if isinstance(found, str):
        raise SystemExit(found)
    with (
        TemporaryDirectory() as folder,
        temporary_cluster(f"scene-{os.getpid()}", Size.API) as cluster,
        scene(
            cluster,
            Helm(programs["helm"], Path(folder)),
            found.with_name("prometheus"),
            Path(folder),
            num_clients=parsed.clients,
            scrape="1s",
        ) as running,
    ):
        time.sleep(60 * parsed.minutes)
        draw_boards(running.prometheus.url, parsed.folder, parsed.minutes)


if __name__ == "__main__":
    main()
