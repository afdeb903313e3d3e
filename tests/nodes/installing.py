"""What tests that install quire have in common."""

from typing import Any

from hack.cluster.cluster import Cluster
from quire_operator.resource.crd import NAME
from tests.nodes.samples import SIMULATED, merged, sample
from tests.nodes.services import Body, Service

HOST = "models.example.com"
PUBLIC: Body = {"ingress": {"host": HOST}, "access": {"public": True}}
WAIT = ("--wait", "--timeout=110s")


def make_namespace(cluster: Cluster, name: str) -> None:
    """One that takes only restricted pods."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": name, "labels": labels}
    cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def remove_kind(cluster: Cluster) -> None:
    """Delete the kind, and with it all services."""
    cluster.api.call("delete", f"crd/{NAME}", "--timeout=110s")


def apply_mixed(cluster: Cluster, namespace: str, host: str = HOST, **more: Any) -> Service:
    """Apply the sample of mixed GPUs, simulated and for everybody, and wait until it is ready."""
    token = ("create", "secret", "generic", "hf-token", "--from-literal=token=x")
    cluster.api.call(*token, f"--namespace={namespace}")
    spec = merged(SIMULATED | PUBLIC | {"ingress": {"host": host}}, more)
    cluster.api.apply(*sample("mixed-gpus", namespace, **spec))
    service = Service(cluster, namespace, "mixed-gpus")
    service.wait_for("Ready", "True")
    return service
