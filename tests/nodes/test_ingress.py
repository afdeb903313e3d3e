"""Requests from outside: Envoy, the operator's EndpointSlice, a gateway elsewhere, an engine."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.cluster.operators import SYSTEM
from tests.nodes.services import L4, Service, simulated

HOST = "models.example.com"
QUESTION = {"model": "chat", "prompt": "Once upon a time", "max_tokens": 3}


@pytest.fixture
def scaled(cluster: Cluster) -> Iterator[None]:
    """There is one gateway again after the test."""
    yield
    scale_gateway(cluster, 1)


def scale_gateway(cluster: Cluster, replicas: int) -> None:
    """Have so many gateways."""
    here = f"--namespace={SYSTEM}"
    cluster.api.call("scale", "deployment/quire-gateway", f"--replicas={replicas}", here)
    cluster.api.call("rollout", "status", "deployment/quire-gateway", here, "--timeout=110s")


def ask(cluster: Cluster, path: str, body: Any = None, host: str = HOST) -> httpx.Response:
    """One request to Envoy, from outside."""
    url = f"http://127.0.0.1:{cluster.config.ports.ingress}{path}"
    headers = {"host": host}
    if body is None:
        return httpx.get(url, headers=headers, timeout=60)
    return httpx.post(url, json=body, headers=headers, timeout=60)


def wait_for_answer(cluster: Cluster, status: int) -> None:
    """Wait until Envoy's answer is of this status: what it is told takes its way."""

    def is_so() -> bool:
        try:
            return ask(cluster, "/v1/models").status_code == status
        except httpx.TransportError:
            return False  # without an Ingress, Envoy does not listen

    wait_until(is_so, pause_seconds=0.1)


def test_requests_come_in_through_envoy_and_the_gateway_to_an_engine(
    cluster: Cluster, service: Service, scaled: None
) -> None:
    service.apply(simulated(L4), ingress={"host": HOST}, access={"public": True})
    service.wait_for("Ready", "True")
    wait_for_answer(cluster, 200)
    answer = ask(cluster, "/v1/completions", QUESTION)

    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "chat"
    assert answer.json()["usage"]["completion_tokens"] == 3
    streamed = ask(cluster, "/v1/completions", QUESTION | {"stream": True})
    assert streamed.text.rstrip().endswith("data: [DONE]")
    assert ask(cluster, "/v1/models", host="elsewhere.example.com").status_code == 404
    # without a gateway nothing hangs: Envoy says so at once, and sees the next one
    scale_gateway(cluster, 0)
    wait_for_answer(cluster, 503)
    scale_gateway(cluster, 1)
    wait_for_answer(cluster, 200)
