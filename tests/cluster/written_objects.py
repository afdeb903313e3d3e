"""Objects of which there is only what the API server has, with a status that the test writes."""

import json
from typing import Any

from hack.cluster.cluster import Cluster
from quire_operator.planner.names import ROLE_LABEL
from tests.cluster.operators import SYSTEM

Body = dict[str, Any]

OPERATOR = "quire-operator"
"""A service account."""


def pod(
    cluster: Cluster,
    role: str,
    name: str,
    *,
    address: str = "10.9.8.7",
    port: int = 8090,
    waiting: Body | None = None,
    namespace: str = SYSTEM,
    args: list[str] | None = None,
    said: str = "",
) -> None:
    """A pod of which there is only the object, with a status as a kubelet would write it."""
    image = f"registry.example/{role}:1"
    container = {
        "name": "main",
        "image": image,
        "args": args or [],
        "ports": [{"name": "management", "containerPort": port}],
    }
    cluster.api.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {ROLE_LABEL: role}},
            "spec": {"serviceAccountName": OPERATOR, "containers": [container]},
        }
    )
    ready = {"type": "Ready", "status": "False" if waiting else "True"}
    status: Body = {"phase": "Running", "conditions": [ready], "podIP": address}
    status["podIPs"] = [{"ip": address}]
    if waiting:
        state = {"name": "main", "image": image, "imageID": "", "state": {"waiting": waiting}}
        last = {"terminated": {"exitCode": 2, "message": said}} if said else {}
        more = {"ready": False, "restartCount": 0, "lastState": last}
        status["containerStatuses"] = [state | more]
    _write_status(cluster, f"pod/{name}", status, f"--namespace={namespace}")


def warning(cluster: Cluster, pod: str, message: str, stamp: str) -> None:
    """An event of a pod, as a kubelet writes it."""
    cluster.api.apply(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod}-{stamp[-3:-1]}", "namespace": SYSTEM},
            "involvedObject": {"kind": "Pod", "name": pod, "namespace": SYSTEM},
            "type": "Warning",
            "reason": "FailedMount",
            "message": message,
            "lastTimestamp": stamp,
        }
    )


def node(
    cluster: Cluster, name: str, *, labels: dict[str, str] | None = None, gpus: int = 0
) -> None:
    metadata = {"name": name, "labels": labels or {}}
    cluster.api.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"conditions": ready, "allocatable": amounts, "capacity": amounts}
    _write_status(cluster, f"node/{name}", status)


def _write_status(cluster: Cluster, what: str, status: Body, *flags: str) -> None:
    patch = ("--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}")
    cluster.api.call("patch", what, *flags, *patch)


def kind_of_routes() -> Body:
    """HTTPRoutes with whatever fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group = "gateway.networking.k8s.io"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"httproutes.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "names": {"kind": "HTTPRoute", "plural": "httproutes"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
