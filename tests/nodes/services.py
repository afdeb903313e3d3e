"""InferenceServices on real nodes: what a test makes, and what the cluster says of it."""

import json
from collections.abc import Callable
from typing import Any

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.cluster.services import apply, service

Body = dict[str, Any]

MODEL = "llama3-8b"
H100, A100, L4 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4"
_GPUS = {H100: "h100", A100: "a100-80", L4: "l4"}
_POLL_SECONDS = 0.2
_WAIT_SECONDS = 180.0


def simulated(product: str, **changes: Any) -> Body:
    """An accelerator whose engines hold GPUs of this product, and only simulate its work."""
    gpu = _GPUS[product]
    simulate = {"gpu": gpu, "modelShape": MODEL}
    name = gpu.partition("-")[0]
    return {"name": name, "products": [product], "simulate": simulate, **changes}


class Service:
    """One service in a namespace of its own test."""

    def __init__(self, cluster: Cluster, namespace: str, name: str = "chat") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name

    def apply(self, *accelerators: Body, replicas: int = 1, **spec: Any) -> None:
        """Make it, or make it another one."""
        spec = {
            "engine": {"drainSeconds": 2},
            "accelerators": list(accelerators),
            "replicas": replicas,
            "scaling": {"mode": "External"},
            **spec,
        }
        answer = apply(self.cluster, service(self.name, self.namespace, **spec))
        assert answer.returncode == 0, answer.stderr

    @property
    def url(self) -> str:
        """Where the cluster's own applications ask it."""
        return f"http://{self.name}.{self.namespace}.svc.cluster.local/v1"

    def delete(self) -> None:
        """Delete it, and wait until what was made for it is gone."""
        here = f"--namespace={self.namespace}"
        self.cluster.api.call("delete", f"qis/{self.name}", here, "--timeout=60s")
        self.wait(lambda: not self.left(), "is deleted with all that it had")

    def left(self) -> list[str]:
        """Objects that were made for it, and their pods."""
        kinds = "deploy,rs,pods,svc,endpointslices,configmaps,secrets,ingress,netpol,pdb"
        selector = f"--selector=serving.quire.dev/service={self.name}"
        here = f"--namespace={self.namespace}"
        return self.cluster.api.call("get", kinds, here, selector, "--output=name").split()

    def status(self) -> Body:
        """Its status, empty where there is none."""
        group = "/apis/serving.quire.dev/v1alpha1"
        body = self.cluster.api.get(
            f"{group}/namespaces/{self.namespace}/inferenceservices/{self.name}"
        )
        if body is None or "status" not in body:
            return {}
        if body["status"].get("observedGeneration") != body["metadata"]["generation"]:
            return {}  # it is about an older spec
        status: Body = body["status"]
        return status

    def condition(self, kind: str) -> Body:
        """One of its conditions."""
        found = (one for one in self.status().get("conditions", []) if one["type"] == kind)
        return next(found, {"status": "", "reason": "", "message": ""})

    def pods(self) -> list[Body]:
        """Its engine pods, without those that are ending."""
        selector = f"labelSelector=serving.quire.dev%2Fservice%3D{self.name}"
        found = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods?{selector}")
        items = found["items"] if found else []
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def events(self) -> dict[str, str]:
        """Messages of its events by reason."""
        found = self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/events") or {"items": []}
        return {
            one["reason"]: one["message"]
            for one in found["items"]
            if one["involvedObject"]["kind"] == "InferenceService"
            and one["involvedObject"]["name"] == self.name
        }

    def wait_for(self, kind: str, status: str, reason: str = "") -> Body:
        """Wait until a condition is so, of this reason if one is given; returns it."""

        def is_so() -> bool:
            found = self.condition(kind)
            return found["status"] == status and reason in ("", found["reason"])

        self.wait(is_so, f"{kind} is {status} {reason}")
        return self.condition(kind)

    def wait(
        self, condition: Callable[[], bool], what: str, seconds: float = _WAIT_SECONDS
    ) -> None:
        """Wait, and if in vain say what there is."""
        try:
            wait_until(condition, seconds, pause_seconds=_POLL_SECONDS)
        except AssertionError:
            raise AssertionError(f"not so: {what}\n{self.describe()}") from None

    def describe(self) -> str:
        """All that is known of it, for whoever reads a failure."""
        pods = [
            {"name": pod["metadata"]["name"], "node": pod["spec"].get("nodeName"), **pod["status"]}
            for pod in self.pods()
        ]
        return json.dumps({"status": self.status(), "pods": pods, "left": self.left()}, indent=1)


def node_of(pod: Body) -> str:
    """The node that it runs on."""
    return str(pod["spec"].get("nodeName", ""))


def is_ready(pod: Body) -> bool:
    """Whether its readiness probe succeeds."""
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
