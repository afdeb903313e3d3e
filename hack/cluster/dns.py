"""Names of Services: CoreDNS beside the control plane, reached by pods at the usual address."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.certificates import Authority
from hack.cluster.kubeconfig import write_kubeconfig
from hack.cluster.namespaces import Namespaces
from hack.cluster.network import CONTROL_PLANE
from hack.cluster.node_files import DNS_SERVICE

USER = "quire-coredns"
_COREFILE = """\
. {{
    bind {address}
    errors
    health 127.0.0.1:8080
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
"""


@dataclass(frozen=True)
class Dns:
    """Starts CoreDNS; names outside the cluster are unknown to it."""

    namespaces: Namespaces
    program: Path
    folder: Path

    def start(self, authority: Authority, server: str) -> None:
        """Start it if it is not running."""
        kubeconfig = write_kubeconfig(self.folder / "coredns.kubeconfig", authority, server, USER)
        corefile = self.folder / "Corefile"
        corefile.write_text(_COREFILE.format(address=CONTROL_PLANE, kubeconfig=kubeconfig))
        self.namespaces.start("coredns", (self.program, "-conf", corefile))


def objects() -> list[dict[str, Any]]:
    """The Service that pods ask, what is behind it, and what CoreDNS may read."""
    labels = {"k8s-app": "kube-dns", "kubernetes.io/service-name": "kube-dns"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    ports.append({"name": "dns-tcp", "port": 53, "protocol": "TCP"})
    meta = {"name": "kube-dns", "namespace": "kube-system", "labels": labels}
    service = {"clusterIP": DNS_SERVICE, "ports": ports}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": meta,
            "addressType": "IPv4",
            "endpoints": [{"addresses": [CONTROL_PLANE], "conditions": {"ready": True}}],
            "ports": ports,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": USER},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        role_binding(USER, USER),
    ]


def role_binding(user: str, role: str) -> dict[str, Any]:
    """What lets a user do what a role of the whole cluster says."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
