"""The way in: Contour turns Ingresses into Envoy's configuration, both beside the control plane."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.certificates import Authority
from hack.cluster.dns import role_binding
from hack.cluster.errors import ClusterError
from hack.cluster.kubeconfig import write_kubeconfig
from hack.cluster.namespaces import Namespaces
from hack.cluster.network import CONTROL_PLANE

PORT = 80
CLASS = "contour"
USER = "quire-contour"
_XDS = ("--xds-address=127.0.0.1", "--xds-port=8001")


@dataclass(frozen=True)
class Ingress:
    """Starts Contour and Envoy."""

    namespaces: Namespaces
    contour: Path
    envoy: Path
    folder: Path

    def manifest(self) -> str:
        """Kinds and role, as Contour's release has them."""
        names = ("01-crds.yaml", "02-role-contour.yaml")
        return "\n---\n".join(self.contour.with_name(name).read_text() for name in names)

    def start(self, authority: Authority, server: str) -> None:
        """Start what is not running.

        Raises
        ------
        ClusterError
            Contour cannot write Envoy's first configuration.
        """
        kubeconfig = write_kubeconfig(self.folder / "contour.kubeconfig", authority, server, USER)
        bootstrap = self.folder / "envoy.json"
        if not bootstrap.exists():
            ran = self.namespaces.run(self.contour, "bootstrap", bootstrap, *_XDS)
            if ran.returncode != 0:
                raise ClusterError(f"contour bootstrap failed: {ran.stderr.strip()}")
        self.namespaces.start(
            "contour",
            (
                self.contour,
                "serve",
                f"--kubeconfig={kubeconfig}",
                "--insecure",
                *_XDS,
                f"--ingress-class-name={CLASS}",
                "--disable-leader-election",
                f"--envoy-service-http-address={CONTROL_PLANE}",
                f"--envoy-service-http-port={PORT}",
                "--debug-http-address=127.0.0.1",
                # its own ports for these would be the same one
                "--stats-port=8002",
                "--http-port=8003",
                "--health-port=8003",
            ),
        )
        self.namespaces.start(
            "envoy",
            (
                self.envoy,
                f"--config-path={bootstrap}",
                "--service-cluster=quire",
                "--service-node=envoy",
                "--log-level=warn",
                # threads for two cores are enough, and memory goes with them
                "--concurrency=2",
            ),
        )


def objects() -> list[dict[str, Any]]:
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
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "projectcontour"}},
        role_binding(USER, "contour"),
    ]
