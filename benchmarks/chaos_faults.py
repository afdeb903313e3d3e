"""What is done to the cluster, one thing after the other."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.cluster.operators import SYSTEM
from tests.nodes.faults import cut_off, kill_container
from tests.nodes.seen import pods_of
from tests.nodes.services import Body, Service, is_ready, node_of

_CUT_SECONDS = 30.0


@dataclass
class Stage:
    """What the faults happen to."""

    cluster: Cluster
    service: Service
    namespace: str
    num_revisions: int = 0
    _cut: set[str] = field(default_factory=set)

    def mend(self) -> None:
        """Let nodes that are cut off in again."""
        for node in self._cut:
            cut_off(self.cluster, node, is_cut=False)
        self._cut.clear()

    def cut(self, node: str, seconds: float) -> None:
        """Nothing reaches a node for so long."""
        self._cut.add(node)
        cut_off(self.cluster, node, is_cut=True)
        time.sleep(seconds)
        self.mend()

    def ready(self, role: str) -> list[Body]:
        """Pods of a role that are ready, once there is one."""
        found: list[Body] = []

        def find() -> bool:
            pods = pods_of(self.cluster, role, self.namespace if role == "engine" else SYSTEM)
            staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            found[:] = [pod for pod in staying if is_ready(pod)]
            return bool(found)

        wait_until(find, pause_seconds=0.2)
        return found


class Fault(NamedTuple):
    """One of them."""

    name: str
    act: Callable[[Stage], None]


def faults() -> list[Fault]:
    """All of them, in their order."""
    return [
        Fault("an engine is killed (SIGKILL)", _kill("engine")),
        Fault("operators are restarted", _restart("operator")),
        Fault("gateways are restarted", _restart("gateway")),
        Fault("engines are rolled over to a new revision", _roll),
        Fault("a gateway is killed (SIGKILL)", _kill("gateway")),
        Fault(f"a node with engines is cut off for {_CUT_SECONDS:.0f} s", _cut_node),
        Fault("an engine's pod is deleted by force", _delete_engine),
        Fault("an operator is killed (SIGKILL)", _kill("operator")),
        Fault("an engine's pod is deleted, and drains", _evict_engine),
    ]


def _kill(role: str) -> Callable[[Stage], None]:
    return lambda stage: kill_container(stage.cluster, stage.ready(role)[0])


def _restart(role: str) -> Callable[[Stage], None]:
    name = f"deployment/quire-{role}"
    return lambda stage: _kubectl(stage, "rollout", "restart", name, f"--namespace={SYSTEM}")


def _roll(stage: Stage) -> None:
    """Another variable in each accelerator's pods."""
    stage.num_revisions += 1
    path = "/apis/serving.quire.dev/v1alpha1/namespaces"
    body = stage.cluster.api.get(f"{path}/{stage.namespace}/inferenceservices/{stage.service.name}")
    for one in body["spec"]["accelerators"]:
        one.setdefault("pod", {})["env"] = [{"name": "REVISION", "value": str(stage.num_revisions)}]
    for name in ("managedFields", "resourceVersion"):
        body["metadata"].pop(name, None)
    body.pop("status", None)
    stage.cluster.api.apply(body)


def _cut_node(stage: Stage) -> None:
    """One that has an engine and no gateway, if there is one."""
    gateways = {node_of(pod) for pod in stage.ready("gateway")}
    nodes = [node_of(pod) for pod in stage.ready("engine")]
    chosen = next((node for node in nodes if node not in gateways), nodes[0])
    stage.cut(chosen, _CUT_SECONDS)


def _delete_engine(stage: Stage) -> None:
    _delete(stage, "--grace-period=0", "--force")


def _evict_engine(stage: Stage) -> None:
    _delete(stage)


def _delete(stage: Stage, *flags: str) -> None:
    name = stage.ready("engine")[0]["metadata"]["name"]
    where = f"--namespace={stage.namespace}"
    _kubectl(stage, "delete", "pod", name, where, "--wait=false", *flags)


def _kubectl(stage: Stage, *arguments: str) -> None:
    stage.cluster.api.call(*arguments)
