"""What runs an engine for each pod of one namespace where there is an API server and no node.

Pods have addresses that are nobody's; who reads them is to make them those of this machine's
loopback interface, on which the engines listen.
"""

import base64
import json
import signal
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from tests.api.servers import RunningServer

PLACE = "scaled"
NOBODYS, OURS = b"192.0.2.", b"127.0.9."
PODS = f"/api/v1/namespaces/{PLACE}/pods"
KEPT_FLAGS = (
    "--simulate",
    "--model-shape",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--served-model-name",
    "--drain-seconds",
)


class Kubelet:
    """Runs an engine for each pod, and says so in the pod's status."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._engines: dict[str, RunningServer] = {}
        self._leaving: list[RunningServer] = []
        """They finish what they have begun."""
        self._number = 1
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.problem = ""

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
        for engine in (*self._engines.values(), *self._leaving):
            engine.kill()

    def _run(self) -> None:
        while not self._is_over.wait(0.5):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - told by the test
                self.problem = repr(error)

    def _look(self) -> None:
        answer = self._cluster.api.get(PODS) or {"items": []}
        pods = {
            one["metadata"]["name"]: one
            for one in answer["items"]
            if "deletionTimestamp" not in one["metadata"]
        }
        for name in self._engines.keys() - pods.keys():
            engine = self._engines.pop(name)
            self._cluster.api.call(
                "delete", "endpointslice", name, f"--namespace={PLACE}", "--ignore-not-found"
            )
            engine.process.send_signal(signal.SIGTERM)
            self._leaving.append(engine)
        for name in pods.keys() - self._engines.keys():
            self._start(name, pods[name])

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        self._number += 1
        given = pod["spec"]["containers"][0]["args"]
        flags = [one for one in given if one.split("=")[0] in KEPT_FLAGS]
        host = f"{OURS.decode()}{self._number}"
        engine = RunningServer(
            *flags,
            f"--internal-token-file={self._tokens()}",
            f"--host={host}",
            "--port=8000",
            stderr=self._folder / f"{name}.log",
        )
        self._engines[name] = engine
        engine.__enter__()
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": _now()}
            for kind in ("PodScheduled", "Ready", "ContainersReady")
        ]
        address = f"{NOBODYS.decode()}{self._number}"
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": conditions,
        }
        try:
            self._cluster.api.call(
                "patch",
                "pod",
                name,
                f"--namespace={PLACE}",
                "--subresource=status",
                "--type=merge",  # in the place of the address that it had in the test before
                f"--patch={json.dumps({'status': status})}",
            )
        except ClusterError as error:
            if "(NotFound)" in str(error):
                return  # it went while its engine started: the next look ends that, too
            raise
        # the cluster's own controller leaves out pods without a node
        self._cluster.api.apply(_slice(name, address))

    def _tokens(self) -> Path:
        """What the operator lets a service's engines know it and the gateway by."""
        path = self._folder / "tokens"
        secret = self._cluster.api.get(f"/api/v1/namespaces/{PLACE}/secrets/chat-internal")
        path.write_bytes(base64.b64decode(secret["data"]["tokens"]))
        return path


def _slice(pod: str, address: str) -> dict[str, Any]:
    """Where a pod's engine is, as the cluster's controller writes it."""
    labels = {
        "kubernetes.io/service-name": "chat-engines",
        "endpointslice.kubernetes.io/managed-by": "test",
        "serving.quire.dev/role": "engines",
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": PLACE, "name": pod, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": pod, "uid": pod},
            }
        ],
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
