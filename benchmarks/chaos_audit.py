"""Whether every block is where it should be once nobody asks any more."""

import base64
from contextlib import suppress
from dataclasses import dataclass

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.nodes.clients import Client
from tests.nodes.services import Body, Service, is_ready

_PLACE = "audit"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What an engine says of its blocks."""

    pod: str
    total: int
    free: int
    held: int
    reserved: int
    queued: int
    running: int
    restarts: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, and nothing is kept for nobody."""
        kept = self.held or self.reserved or self.queued or self.running
        return not kept and self.free == self.total


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All engines, and what the service says in the end."""

    engines: list[Engine]
    is_ready: bool
    last_reason: str
    """Of the last scaling decision."""

    @property
    def is_clean(self) -> bool:
        """Whether all engines are."""
        return bool(self.engines) and all(one.is_clean for one in self.engines)


def audit(cluster: Cluster, service: Service) -> Audit:
    """Ask every engine, by the token that gateways have; they may take a moment to be idle."""
    cluster.api.call("create", "namespace", _PLACE)
    client = Client(cluster, _PLACE)
    path = f"/api/v1/namespaces/{service.namespace}/secrets/{service.name}-internal"
    tokens = base64.b64decode(cluster.api.get(path)["data"]["tokens"]).decode().split()

    def ask() -> list[Engine]:
        return [_engine(client, pod, tokens[0]) for pod in service.pods() if is_ready(pod)]

    with suppress(AssertionError):  # the report says which
        wait_until(lambda: all(one.is_clean for one in ask()), seconds=60, pause_seconds=1)
    decision = service.status().get("lastScalingDecision", {})
    return Audit(
        engines=ask(),
        is_ready=service.condition("Ready")["status"] == "True",
        last_reason=str(decision.get("reason", "")),
    )


def _engine(client: Client, pod: Body, token: str) -> Engine:
    """Of a pod that runs."""
    answer = client.ask(
        f"http://{pod['status'].get('podIP')}:8000/state", authorization=f"Bearer {token}"
    )
    assert answer.status == 200, answer.text
    state = answer.json()
    blocks = state["blocks"]
    return Engine(
        pod=pod["metadata"]["name"],
        running=state["sequences"]["running"],
        restarts=sum(one["restartCount"] for one in pod["status"].get("containerStatuses", [])),
        **{name: blocks[name] for name in ("total", "free", "held", "reserved", "queued")},
    )
