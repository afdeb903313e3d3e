"""The way in: Contour turns Ingresses and HTTPRoutes into Envoy's configuration.

Both run beside the control plane.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.api import ApiClient
from hack.cluster.binaries import provide_tool
from hack.cluster.catalogue import GATEWAY_API_CRDS
from hack.cluster.certificates import Authority
from hack.cluster.dns import role_binding
from hack.cluster.errors import ClusterError
from hack.cluster.kubeconfig import write_kubeconfig
from hack.cluster.namespaces import Namespaces
from hack.cluster.network import CONTROL_PLANE

PORT, TLS_PORT = 8080, 8443
"""Envoy's, for what the Gateway has at ports 80 and 443: Contour adds 8000 to them."""
CLASS = "contour"
GATEWAY = ("projectcontour", "contour")
"""Namespace and name of the Gateway that HTTPRoutes can name."""
USER = "quire-contour"
_SECRET = "quire-envoy"
_HEALTH_PORT = 8003
_ADMIN = "--admin-address=/run/envoy.sock"
_XDS = ("--xds-address=127.0.0.1", "--xds-port=8001")


@dataclass(frozen=True)
class Ingress:
    """Starts Contour and Envoy."""

    namespaces: Namespaces
    contour: Path
    envoy: Path
    folder: Path

    def install(self, api: ApiClient, authority: Authority) -> None:
        """Create what Contour works with, kinds and role as its release has them.

        Raises
        ------
        ClusterError
            The API server refuses, or does not serve the kinds.
        """
        api.apply(*_objects())
        api.apply_text(self.contour.with_name("02-role-contour.yaml").read_text())
        kinds = [
            self.contour.with_name("01-crds.yaml"),
            *sorted(provide_tool(GATEWAY_API_CRDS).iterdir()),
        ]
        files = [f"--filename={path}" for path in kinds]
        api.call("apply", "--server-side", "--force-conflicts", *files)
        # Contour ends if it starts before the API server knows them
        api.wait_established(*files)
        api.apply(_certificate(authority), *_gateway())

    def wait_until_ready(self) -> None:
        """Wait until Contour has seen what there is.

        Raises
        ------
        ClusterError
            A program has ended, or it takes too long.
        """
        roles = [f"{self.namespaces.name}/{name}" for name in ("contour", "envoy")]
        self.namespaces.launcher.wait_for("Contour", self._is_ready, roles)

    def _is_ready(self) -> bool:
        url = f"http://127.0.0.1:{_HEALTH_PORT}/healthz"
        program = f"import urllib.request; urllib.request.urlopen({url!r}, timeout=10)"
        return self.namespaces.run(sys.executable, "-c", program).returncode == 0

    def start(self, authority: Authority, server: str) -> None:
        """Start what is not running.

        Raises
        ------
        ClusterError
            Contour cannot write Envoy's first configuration.
        """
        kubeconfig = write_kubeconfig(self.folder / "contour.kubeconfig", authority, server, USER)
        bootstrap, config = self.folder / "envoy.json", self.folder / "contour.json"
        namespace, name = GATEWAY
        reference = {"namespace": namespace, "name": name}
        config.write_text(json.dumps({"gateway": {"gatewayRef": reference}}))
        ran = self.namespaces.run(self.contour, "bootstrap", bootstrap, *_XDS, _ADMIN)
        if ran.returncode != 0:
            raise ClusterError(f"contour bootstrap failed: {ran.stderr.strip()}")
        self.namespaces.start(
            "contour",
            (
                self.contour,
                "serve",
                f"--kubeconfig={kubeconfig}",
                f"--config-path={config}",
                "--insecure",
                *_XDS,
                f"--ingress-class-name={CLASS}",
                "--disable-leader-election",
                f"--envoy-service-http-address={CONTROL_PLANE}",
                # what Ingresses say of themselves: Envoy has no Service to ask for it
                f"--ingress-status-address={CONTROL_PLANE}",
                "--debug-http-address=127.0.0.1",
                # its own ports for these would be the same one
                "--stats-port=8002",
                f"--http-port={_HEALTH_PORT}",
                f"--health-port={_HEALTH_PORT}",
            ),
        )
        self.namespaces.start(
            "envoy",
            (
                self.envoy,
                # it takes no --flag=value
                *("--config-path", bootstrap),
                *("--service-cluster", "quire"),
                *("--service-node", "envoy"),
                *("--log-level", "warn"),
                # threads for two cores are enough, and memory goes with them
                *("--concurrency", "2"),
            ),
        )


def _objects() -> list[dict[str, Any]]:
    """The class that Ingresses name, and what Contour may do."""
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {
                "name": CLASS,
                "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"},
            },
            "spec": {"controller": "projectcontour.io/ingress-controller"},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY[0]}},
        role_binding(USER, "contour"),
    ]


def _certificate(authority: Authority) -> dict[str, Any]:
    """For HTTPS where no Ingress has its own: without it Envoy would not listen there."""
    pair = authority.issue(_SECRET, _SECRET, hosts=[_SECRET])
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": GATEWAY[0], "name": _SECRET},
        "stringData": {name: path.read_text() for name, path in files.items()},
    }


def _gateway() -> list[dict[str, Any]]:
    """What HTTPRoutes of all namespaces attach to: the same Envoy as Ingresses have."""
    api_version = "gateway.networking.k8s.io/v1"
    namespace, name = GATEWAY
    allowed = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    listeners = [
        {"name": "http", "protocol": "HTTP", "port": 80, **allowed},
        {
            "name": "https",
            "protocol": "HTTPS",
            "port": 443,
            "tls": {"certificateRefs": [{"name": _SECRET}]},
            **allowed,
        },
    ]
    return [
        {
            "apiVersion": api_version,
            "kind": "GatewayClass",
            "metadata": {"name": CLASS},
            "spec": {"controllerName": "projectcontour.io/gateway-controller"},
        },
        {
            "apiVersion": api_version,
            "kind": "Gateway",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"gatewayClassName": CLASS, "listeners": listeners},
        },
    ]
