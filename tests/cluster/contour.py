"""Contour and Envoy beside an API server without nodes: what Ingresses lead to, for real.

They are reached at the loopback address, and so are the endpoints that Envoy goes to.
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from hack.cluster.binaries import provide_programs
from hack.cluster.cluster import Cluster
from hack.cluster.dns import role_binding
from tests.api.servers import wait_until
from tests.cluster.operators import free_port

USER = "quire-contour"
CLASS = "contour"
_NAMESPACE = "projectcontour"


class RunningContour:
    """Both, ready when the block begins.

    Parameters
    ----------
    kubeconfig
        Of a way to the API server with the rights of `USER`.
    """

    def __init__(self, cluster: Cluster, kubeconfig: Path, folder: Path) -> None:
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._programs: list[subprocess.Popen[bytes]] = []
        self._port, self._health = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start()
            wait_until(self._is_ready)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _start(self) -> None:
        programs = provide_programs(["contour", "envoy"])
        contour, envoy = programs["contour"], programs["envoy"]
        bootstrap, xds = self._folder / "envoy.json", free_port()
        where = ("--xds-address=127.0.0.1", f"--xds-port={xds}")
        admin = f"--admin-address={self._folder / 'envoy.sock'}"
        subprocess.run(
            [contour, "bootstrap", bootstrap, *where, admin], check=True, capture_output=True
        )
        self._run(
            contour,
            *("serve", "--insecure", *where, "--disable-leader-election"),
            f"--kubeconfig={self._kubeconfig}",
            f"--ingress-class-name={CLASS}",
            "--envoy-service-http-address=127.0.0.1",
            f"--envoy-service-http-port={self._port}",
            "--envoy-service-https-address=127.0.0.1",
            f"--envoy-service-https-port={free_port()}",
            "--debug-http-address=127.0.0.1",
            f"--debug-http-port={free_port()}",
            "--stats-address=127.0.0.1",
            f"--stats-port={free_port()}",
            "--http-address=127.0.0.1",
            f"--http-port={self._health}",
            "--health-address=127.0.0.1",
            f"--health-port={self._health}",
        )
        who = ("--service-cluster", "quire", "--service-node", "envoy")
        quiet = ("--concurrency", "1", "--log-level", "warn", "--use-dynamic-base-id")
        self._run(envoy, "--config-path", bootstrap, *who, *quiet)

    def _run(self, *command: str | Path) -> None:
        name = Path(command[0]).name
        with (self._folder / f"{name}.log").open("wb") as log:
            self._programs.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _is_ready(self) -> bool:
        for one in self._programs:
            if one.poll() is not None:
                logs = [path.read_text()[-2000:] for path in self._folder.glob("*.log")]
                raise AssertionError("\n".join(logs))
        try:
            return httpx.get(f"http://127.0.0.1:{self._health}/healthz", timeout=60).is_success
        except httpx.TransportError:
            return False

    def _end(self) -> None:
        for one in self._programs:
            one.kill()
            one.wait()


def install_contour(cluster: Cluster) -> str:
    """Create the kinds and the role that Contour works with; returns what deletes them again."""
    api = cluster.api
    contour = provide_programs(["contour"])["contour"]
    metadata = {
        "name": CLASS,
        "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
    }
    api.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": metadata,
            "spec": {"controller": "projectcontour.io/ingress-controller"},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
        role_binding(USER, "contour"),
    )
    api.apply_text(contour.with_name("02-role-contour.yaml").read_text())
    kinds = f"--filename={contour.with_name('01-crds.yaml')}"
    api.call("apply", "--server-side", "--force-conflicts", kinds)
    api.wait_established(kinds)  # Contour ends if it starts before the API server knows them
    return kinds


def uninstall_contour(cluster: Cluster, kinds: str) -> None:
    """Take all of it out again."""
    api = cluster.api
    api.call("delete", kinds, "--timeout=120s")
    api.call("delete", "ingressclass", CLASS)
    api.call("delete", "clusterrole", "contour")
    api.call("delete", "clusterrolebinding", USER, "--ignore-not-found")
    api.call("delete", "namespace", _NAMESPACE, "--timeout=120s")
