"""Scaling on a real API server: a real gateway, and simulated engines in place of pods' containers.

Pods have addresses that are nobody's; on their way to gateway and operator they become addresses of
this machine's loopback interface, on which the engines listen.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

from hack.cluster.cluster import Cluster
from quire_gateway import rbac as gateway_rbac
from quire_operator.planner.names import MANAGER
from tests.api.servers import wait_until
from tests.cluster.faulty_api import FaultyApi
from tests.cluster.operators import SYSTEM, RunningOperator, install, root_secret, uninstall
from tests.cluster.pod_engines import NOBODYS, OURS, PLACE, Kubelet
from tests.cluster.services import apply, service
from tests.cluster.test_gateway_routing import Routed

ROOT_SECRET = b"r" * 32
SPEC: dict[str, Any] = {
    "engine": {"maxNumSeqs": 2, "maxNumBatchedTokens": 2048, "drainSeconds": 60},
    "accelerators": [
        {
            "name": name,
            "products": [product],
            "costPerHour": cost,
            "maxReplicas": 2,
            "simulate": {"gpu": name, "modelShape": "llama3-8b"},
        }
        for name, product, cost in (
            ("l4", "NVIDIA-L4", "0.80"),
            ("h100", "NVIDIA-H100-80GB-HBM3", "7.50"),
        )
    ],
    "scaling": {"minReplicas": 1, "maxReplicas": 4, "stabilization": {"down": "60s"}},
    "admission": {"maxQueueSeconds": 60},
}


class Load:
    """Streams that come evenly; each must end whole."""

    def __init__(self, gateway: Routed, *, per_second: float, num_tokens: int) -> None:
        self._url = f"{gateway.url}/v1/completions"
        self._gap = 1.0 / per_second
        self._body = {
            "model": "chat",
            "prompt": "Once upon a time",
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.num_whole = 0
        self.cut: list[str] = []
        self.refused = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(), trust_env=False) as client:
            asks: list[asyncio.Task[None]] = []
            while not self._is_over.is_set():
                asks.append(asyncio.create_task(self._ask(client)))
                await asyncio.sleep(self._gap)
            await asyncio.gather(*asks)

    async def _ask(self, client: httpx.AsyncClient) -> None:
        try:
            async with client.stream("POST", self._url, json=self._body) as answer:
                text = (await answer.aread()).decode()
        except httpx.HTTPError as error:
            self.cut.append(repr(error))
            return
        if answer.status_code in (429, 503):
            self.refused += 1
        elif text.rstrip().endswith("data: [DONE]") and '"error"' not in text:
            self.num_whole += 1
        else:
            self.cut.append(f"{answer.status_code} {text[-300:]}")


def _may_watch(cluster: Cluster, user: str) -> bool:
    """Whether the authorizer has learnt of a user's role."""
    may = ("auth", "can-i", "watch", "configmaps", "--all-namespaces", f"--as={user}")
    return cluster.api.run(*may).returncode == 0


@pytest.fixture(scope="module")
def ways(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Kubeconfigs of operator and gateway."""
    install(api_cluster)
    api_cluster.api.apply(*gateway_rbac.objects(SYSTEM), root_secret(ROOT_SECRET))
    api_cluster.api.call("create", "namespace", PLACE)
    server = f"https://127.0.0.1:{api_cluster.config.ports.api}"
    with contextlib.ExitStack() as stack:
        paths = []
        for account in (MANAGER, gateway_rbac.NAME):
            user = f"system:serviceaccount:{SYSTEM}:{account}"
            wait_until(partial(_may_watch, api_cluster, user))
            folder = tmp_path_factory.mktemp(account)
            way = stack.enter_context(FaultyApi(api_cluster.authority, server, user, folder))
            way.translate = lambda data: data.replace(NOBODYS, OURS)
            paths.append(way.kubeconfig)
        yield paths
    api_cluster.api.call("delete", "namespace", PLACE, "--timeout=120s")
    api_cluster.api.call("delete", "clusterroles,clusterrolebindings", gateway_rbac.NAME)
    uninstall(api_cluster)


def management_of(gateway: Routed) -> str:
    """Where a gateway tells of its fleet."""
    match = re.search(r"management on (http://\S+)", "".join(gateway.output))
    assert match is not None
    return match[1]


def num_engines(gateway: Routed) -> int:
    """Those that requests go to."""
    if not gateway.knows():
        return 0
    return sum(one["is_eligible"] for one in gateway.fleet()["engines"])


def replicas(cluster: Cluster) -> dict[str, int]:
    """What the Deployments ask for."""
    found = cluster.api.get(f"/apis/apps/v1/namespaces/{PLACE}/deployments")["items"]
    return {one["metadata"]["name"].removeprefix("chat-"): one["spec"]["replicas"] for one in found}


def status(cluster: Cluster) -> dict[str, Any]:
    """Of the service."""
    path = f"/apis/serving.quire.dev/v1alpha1/namespaces/{PLACE}/inferenceservices/chat"
    found: dict[str, Any] = cluster.api.get(path).get("status", {})
    return found


FLAGS = (
    "--lease-seconds=3",
    "--engine-image=engine:1",
    f"--gateway-namespace={SYSTEM}",
    "--scale-seconds=1",
    "--poll-seconds=5",
    "--log-format=text",
)


@pytest.mark.slow
def test_load_brings_replicas_of_two_types_and_cuts_no_stream_when_they_go(
    api_cluster: Cluster, ways: list[Path], tmp_path: Path
) -> None:
    flags = [*FLAGS]
    root = tmp_path / "root"
    root.write_bytes(ROOT_SECRET)
    with (
        Kubelet(api_cluster, tmp_path) as kubelet,
        Routed(ways[1], tmp_path / "gateway.log", f"--root-secret-file={root}") as gateway,
    ):
        wait_until(gateway.is_ready)
        flags.append(f"--gateway-urls={management_of(gateway)}")
        answer = apply(api_cluster, service("chat", PLACE, **SPEC))
        assert answer.returncode == 0, answer.stderr
        with RunningOperator(ways[0], tmp_path / "operator.log", *flags):
            wait_until(lambda: bool(kubelet.problem) or num_engines(gateway) == 1, seconds=240)
            assert kubelet.problem == ""
            assert replicas(api_cluster) == {"l4": 1, "h100": 0}
            with Load(gateway, per_second=1.0, num_tokens=60) as load:
                wait_until(lambda: replicas(api_cluster)["h100"] >= 1, seconds=240)
                wait_until(lambda: num_engines(gateway) >= 3, seconds=240)
        before = replicas(api_cluster)
        with RunningOperator(ways[0], tmp_path / "operator-2.log", *flags) as another:
            decided = "quire_operator_scaling_decide_seconds_count"
            wait_until(lambda: f"{decided} " in another.metrics())
            wait_until(lambda: another.metric(decided) >= 3)
            assert replicas(api_cluster) == before
            with Load(gateway, per_second=0.1, num_tokens=60) as trickle:
                wait_until(lambda: sum(replicas(api_cluster).values()) == 1, seconds=400)
                wait_until(lambda: trickle.num_whole > 0)
        said = status(api_cluster)
        events = api_cluster.api.get(f"/api/v1/namespaces/{PLACE}/events")["items"]
    assert kubelet.problem == ""
    assert load.cut == trickle.cut == []
    assert load.num_whole > 0
    assert trickle.num_whole > 0
    assert "would have carried" in said["lastScalingDecision"]["reason"]
    scaled = [one["message"] for one in events if one["reason"] == "Scaled"]
    assert any("h100 0 -> " in one for one in scaled)


@pytest.mark.slow
def test_an_accelerator_that_leaves_the_spec_serves_until_others_do(
    api_cluster: Cluster, ways: list[Path], tmp_path: Path
) -> None:
    flags = [*FLAGS]
    root = tmp_path / "root"
    root.write_bytes(ROOT_SECRET)
    l4, h100 = SPEC["accelerators"]
    scaling = {"minReplicas": 2, "maxReplicas": 4, "stabilization": {"down": "60s"}}
    counts: list[dict[str, int]] = []

    def is_replaced() -> bool:
        counts.append(replicas(api_cluster))
        return "l4" not in counts[-1]

    with (
        Kubelet(api_cluster, tmp_path) as kubelet,
        Routed(ways[1], tmp_path / "gateway.log", f"--root-secret-file={root}") as gateway,
    ):
        wait_until(gateway.is_ready)
        flags.append(f"--gateway-urls={management_of(gateway)}")
        spec = SPEC | {"scaling": scaling}
        answer = apply(api_cluster, service("chat", PLACE, **spec | {"accelerators": [l4]}))
        assert answer.returncode == 0, answer.stderr
        with RunningOperator(ways[0], tmp_path / "operator.log", *flags):
            wait_until(lambda: bool(kubelet.problem) or num_engines(gateway) == 2, seconds=240)
            assert kubelet.problem == ""
            with Load(gateway, per_second=0.5, num_tokens=60) as load:
                wait_until(lambda: load.num_whole >= 2)
                answer = apply(
                    api_cluster, service("chat", PLACE, **spec | {"accelerators": [h100]})
                )
                assert answer.returncode == 0, answer.stderr
                wait_until(is_replaced, seconds=240)
                num_whole = load.num_whole
                wait_until(lambda: load.num_whole > num_whole)
        events = api_cluster.api.get(f"/api/v1/namespaces/{PLACE}/events")["items"]
    assert kubelet.problem == ""
    # on a busy machine one more was on its way when it left
    assert all(one.get("l4", 2) >= 2 for one in counts)
    assert any(one.get("l4") and one.get("h100", 0) >= 2 for one in counts)
    assert load.cut == []
    assert load.refused == 0
    scaled = [one["message"] for one in events if one["reason"] == "Scaled"]
    # for the load, or for minReplicas while that is not known yet
    assert any(one.startswith("h100 ") and " -> 2: " in one for one in scaled), scaled
    assert any(one.startswith("l4 2 -> 0: l4 left the spec, and others serve") for one in scaled)
