"""InferenceServices as users write them, and what a cluster says to them."""

import json
import subprocess
from copy import deepcopy
from typing import Any

from hack.cluster.cluster import Cluster

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
