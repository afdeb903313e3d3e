"""InferenceServices as users write them, and what a cluster says to them."""

import json
import subprocess
from copy import deepcopy
from typing import Any

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until

Body = dict[str, Any]

SMALL: Body = {
    "apiVersion": "serving.quire.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {
        "model": {"source": "hf://acme/thing@main"},
        "accelerators": [{"name": "l4", "products": ["NVIDIA-L4"]}],
    },
}


def service(name: str = "chat", namespace: str = "default", **spec: Any) -> Body:
    """A service; fields of the spec by keyword."""
    body = deepcopy(SMALL)
    body["metadata"] = {"name": name, "namespace": namespace}
    body["spec"] |= spec
    return body


def apply(cluster: Cluster, body: Body, *flags: str) -> "subprocess.CompletedProcess[str]":
    """What `kubectl apply` says."""
    return cluster.api.run("apply", "-f", "-", *flags, stdin=json.dumps(body))


FIXED = {"replicas": 2, "scaling": {"mode": "External"}}


PATHS = {
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "service": "/api/v1/namespaces/{}/services",
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "qis": "/apis/serving.quire.dev/v1alpha1/namespaces/{}/inferenceservices",
    "event": "/api/v1/namespaces/{}/events",
    "ingress": "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "pdb": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}


def get(cluster: Cluster, kind: str, namespace: str, name: str) -> Any:
    return cluster.api.get(f"{PATHS[kind].format(namespace)}/{name}")


def make(cluster: Cluster, namespace: str, name: str = "chat", **spec: Any) -> None:
    answer = apply(cluster, service(name, namespace, **(FIXED | spec)))
    assert answer.returncode == 0, answer.stderr


def wait_for_status(cluster: Cluster, namespace: str, name: str = "chat") -> Body:
    """The service, once the operator has said all about its newest spec."""

    def is_said() -> bool:
        body = get(cluster, "qis", namespace, name) or {}
        said = body.get("status", {}).get("observedGeneration", 0)
        return bool(said == body.get("metadata", {}).get("generation"))

    wait_until(is_said)
    found: Body = get(cluster, "qis", namespace, name)
    return found


def reasons(cluster: Cluster, namespace: str) -> list[str]:
    """Of the events that the operator wrote."""
    events = cluster.api.get(PATHS["event"].format(namespace))["items"]
    return [one["reason"] for one in events if one["involvedObject"]["kind"] == "InferenceService"]


def tokens(cluster: Cluster, namespace: str) -> str:
    """Those that the Secret of engines has; empty where there is none."""
    ran = cluster.api.run("get", "secret/chat-internal", f"--namespace={namespace}", "-o", "json")
    return str(json.loads(ran.stdout)["data"]["tokens"]) if ran.returncode == 0 else ""
