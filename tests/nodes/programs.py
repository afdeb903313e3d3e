"""The operator and the gateway as a cluster has them: pods, with rights and images of their own.

Both are on the first node, which tests let live.
"""

from typing import Any

from hack.cluster.cluster import Cluster
from hack.cluster.quire_images import ENGINE, GATEWAY, OPERATOR
from quire_gateway import rbac
from quire_operator.planner.names import MANAGER, ROLE_LABEL
from tests.cluster.operators import ROOT, SYSTEM

Body = dict[str, Any]

FIRST_NODE = "node-1"
_GATEWAY_PORT = 8080
_MANAGEMENT_PORT = 8090
_OPERATOR_PORT = 8081
RESTRICTED: Body = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_POLL_SECONDS = 1


def operator() -> Body:
    """The operator; requests are to come by a gateway beside it."""
    flags = (
        f"--engine-image={ENGINE}",
        f"--gateway-namespace={SYSTEM}",
        f"--poll-seconds={_POLL_SECONDS}",
        "--lease-seconds=5",
    )
    container = _container(OPERATOR, flags, {"http": _OPERATOR_PORT}, ("http", _OPERATOR_PORT))
    pod = {"serviceAccountName": MANAGER, "containers": [container]}
    return _deployment(MANAGER, {ROLE_LABEL: "operator"}, pod)


def gateway(replicas: int = 1, grace_seconds: int = 0, drain_seconds: int = 2) -> list[Body]:
    """A gateway for all services, with its rights."""
    flags = (
        "--kubernetes",
        "--root-secret-file=/etc/quire/root/root",
        "--host=0.0.0.0",
        "--management-host=0.0.0.0",
        f"--port={_GATEWAY_PORT}",
        f"--management-port={_MANAGEMENT_PORT}",
        f"--drain-grace-seconds={grace_seconds}",
        f"--drain-seconds={drain_seconds}",
        "--log-requests",
    )
    ports = {"http": _GATEWAY_PORT, "management": _MANAGEMENT_PORT}
    container = _container(GATEWAY, flags, ports, ("management", _MANAGEMENT_PORT))
    container["volumeMounts"].append(
        {"name": "root", "mountPath": "/etc/quire/root", "readOnly": True}
    )
    pod = {
        "serviceAccountName": rbac.NAME,
        "terminationGracePeriodSeconds": grace_seconds + drain_seconds + 15,
        "containers": [container],
        "volumes": [{"name": "root", "secret": {"secretName": ROOT}}],
    }
    made = _deployment(rbac.NAME, {ROLE_LABEL: "gateway"}, pod)
    made["spec"]["replicas"] = replicas
    return [*rbac.objects(SYSTEM), made]


def roll_out(cluster: Cluster, *objects: Body) -> None:
    """Apply objects, and wait until the Deployments among them are ready."""
    cluster.api.apply(*objects)
    for body in objects:
        if body["kind"] == "Deployment":
            name, here = f"deployment/{body['metadata']['name']}", f"--namespace={SYSTEM}"
            cluster.api.call("rollout", "status", name, here, "--timeout=110s")


def _container(image: str, flags: tuple[str, ...], ports: dict[str, int], probe: Any) -> Body:
    return {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "args": list(flags),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": probe[0]},
            "periodSeconds": 1,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _deployment(name: str, labels: dict[str, str], pod: Body) -> Body:
    security = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    volumes = [{"name": "tmp", "emptyDir": {}}, *pod.get("volumes", [])]
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": FIRST_NODE},
        "securityContext": security,
        "terminationGracePeriodSeconds": 5,
        **pod,
        "volumes": volumes,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": SYSTEM, "name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
