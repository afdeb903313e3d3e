"""Operators as processes, with the rights that they have in production and no others."""

import base64
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from hack.cluster.cluster import Cluster
from hack.cluster.kubeconfig import write_kubeconfig
from quire_operator import rbac
from quire_operator.planner.names import MANAGER
from quire_operator.resource.crd import NAME, crd
from tests.api.servers import wait_until

SYSTEM = "quire-system"
LEASE, ROOT = "quire-operator", "quire-root"


def root_secret(root: bytes) -> dict[str, Any]:
    """What all tokens are made of, before the operator makes one that nobody here knows."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": SYSTEM, "name": ROOT},
        "data": {"root": base64.b64encode(root).decode()},
    }


def install(cluster: Cluster, *, watched: list[str] | None = None) -> Path:
    """Put the CRD and the operator's rights into a cluster; returns its kubeconfig."""
    api = cluster.api
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    api.apply(crd())
    api.wait_established(f"crd/{NAME}")
    objects = (
        rbac.cluster_wide(SYSTEM, LEASE, ROOT)
        if watched is None
        else rbac.in_namespaces(SYSTEM, LEASE, ROOT, watched=watched)
    )
    api.apply(*objects)
    user = f"system:serviceaccount:{SYSTEM}:{MANAGER}"
    server = f"https://127.0.0.1:{cluster.config.ports.api}"
    path = cluster.folder / "operator.kubeconfig"
    write_kubeconfig(path, cluster.authority, server, user)
    # the authorizer learns of roles by a watch
    flag = f"--kubeconfig={path}"
    scope = f"--namespace={watched[0]}" if watched else "--all-namespaces"
    wait_until(lambda: api.run(flag, "get", "qis", scope).returncode == 0)
    return path


def uninstall(cluster: Cluster) -> None:
    """Take all of it out again."""
    cluster.api.call("delete", f"crd/{NAME}", "--timeout=120s")
    kinds = "clusterroles,clusterrolebindings"
    cluster.api.call("delete", kinds, MANAGER, "--ignore-not-found")
    cluster.api.call("delete", "namespace", SYSTEM, "--timeout=120s")


class RunningOperator:
    """`python -m quire_operator`, ready when the block begins.

    Parameters
    ----------
    module
        Another program that takes the same flags.
    under
        A command that runs it.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        *flags: str,
        module: str = "quire_operator",
        under: tuple[str, ...] = (),
    ) -> None:
        self.port = free_port()
        self.log = log
        arguments = ["-m", module, "--http-host", "127.0.0.1", *flags]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [*under, sys.executable, *arguments, "--http-port", str(self.port)],
                env=os.environ | {"KUBECONFIG": str(kubeconfig)},
                stdout=file,
                stderr=file,
            )

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.stop()

    def wait_until_ready(self) -> None:
        """Wait until it has seen all that there is."""
        wait_until(lambda: self.process.poll() is not None or self._is_ready())
        assert self.process.poll() is None, self.log.read_text()

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        return next(
            float(line.split()[-1])
            for line in self.metrics().splitlines()
            if line.startswith(f"{name} ")
        )

    def metrics(self) -> str:
        """All of its metrics."""
        return httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=30).text

    def stop(self) -> int:
        """End it as the kubelet does; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
