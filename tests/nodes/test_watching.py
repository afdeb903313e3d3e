"""`quire doctor` and `quire top` on real nodes: pods are reached by port-forward alone."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hack.cluster.cluster import Cluster
from quire_local.cluster.api import ClusterApi
from quire_local.cluster.pods import PodClient, management_of
from tests.api.servers import wait_until
from tests.cluster.operators import SYSTEM
from tests.nodes.services import H100, L4, Service, simulated

_SECONDS = 120
_RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
_GATEWAY = "serving.quire.dev%2Frole%3Dgateway"


def _quire(cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    flags = ("--kubeconfig", str(cluster.kubeconfig))
    command = [sys.executable, "-m", "quire_local.cli", *arguments, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)


def _examine(cluster: Cluster) -> list[dict[str, Any]]:
    ran = _quire(cluster, "doctor", "--only=cluster", "--json")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    findings: list[dict[str, Any]] = json.loads(ran.stdout)["findings"]
    return findings


def test_a_cluster_that_works_is_well_and_its_replicas_are_shown(
    cluster: Cluster, service: Service
) -> None:
    way_in = {"ingress": {"host": "well.example.com"}, "access": {"public": True}}
    service.apply(simulated(H100), simulated(L4), replicas=2, **way_in)
    service.wait_for("Ready", "True")
    what = f"{service.namespace}/{service.name} is ready"
    wait_until(lambda: what in {one["says"] for one in _examine(cluster)}, _SECONDS)
    # Contour is a moment behind with the Ingress's address
    wait_until(lambda: all(one["level"] == "ok" for one in _examine(cluster)), _SECONDS)
    gpus = next(one["says"] for one in _examine(cluster) if one["check"] == "gpus")
    assert f"2 {H100}" in gpus

    ran = _quire(cluster, "top", "--once", "--json")
    assert ran.returncode == 0, ran.stderr
    [shown] = [
        one for one in json.loads(ran.stdout)["services"] if one["namespace"] == service.namespace
    ]
    assert {one["name"] for one in shown["replicas"]} == {
        pod["metadata"]["name"] for pod in service.pods()
    }
    assert all(one["phase"] == "ready" for one in shown["replicas"])


def test_the_commands_of_runbooks_are_right(cluster: Cluster, service: Service) -> None:
    service.apply(simulated(L4))
    service.wait_for("Ready", "True")
    names = {
        "NAMESPACE": service.namespace,
        "NAME": service.name,
        "POD": service.pods()[0]["metadata"]["name"],
        "NODE": "node-1",
    }
    gateway = cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector={_GATEWAY}")
    for command in _commands():
        is_system = f"--namespace {SYSTEM}" in command
        used = names | {"POD": gateway["items"][0]["metadata"]["name"]} if is_system else names
        words = [used.get(word, word) for word in shlex.split(command.replace("/NAME", "/chat"))]
        words = [word.replace("=NAME", f"={service.name}") for word in words[1:]]
        ran = cluster.api.run(*words, *([] if is_system else [f"--namespace={service.namespace}"]))
        # an engine that never ended has no last words
        assert ran.returncode == 0 or "previous terminated container" in ran.stderr, (
            command,
            ran.stderr,
        )
    cluster.api.call("uncordon", "node-1")
    rolled_out = ("rollout", "status", "deployment/quire-operator", f"--namespace={SYSTEM}")
    cluster.api.call(*rolled_out, "--timeout=110s")


def _commands() -> list[str]:
    pages = sorted(_RUNBOOKS.glob("Quire*.md"))
    found = [one for page in pages for one in re.findall(r"`(kubectl [^`]+)`", page.read_text())]
    assert len(found) > len(pages) // 2
    return list(dict.fromkeys(found))


def test_the_management_port_is_reached_by_port_forward(cluster: Cluster) -> None:
    api = ClusterApi(str(cluster.kubeconfig))
    [pod, *_] = api.items(
        f"/api/v1/namespaces/{SYSTEM}/pods", labelSelector="serving.quire.dev/role=gateway"
    )
    client = PodClient(api, management_of(pod))
    for _ in range(3):  # over one connection
        assert b'"services"' in client.get("/fleet")
    assert client.is_forwarded
    client.close()
    assert b"quire_gateway_" in client.get("/metrics")
    client.close()
