"""Nodes of which there are only the objects: kwok answers for their kubelets.

They are tainted: a pod that does not tolerate `kwok.x-k8s.io/node` stays away from them, so that
no real pod ever "runs" there.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.api import ApiClient
from hack.cluster.catalogue import KWOK
from hack.cluster.config import Ports
from hack.cluster.gpu_nodes import GPUS_PER_NODE, RESOURCE, model_of
from hack.cluster.processes import Launcher

TAINT = "kwok.x-k8s.io/node"
_STAGES = Path(__file__).with_name("kwok_stages.yaml")
_LEASE_SECONDS = 12
_READY_SECONDS = 180.0


@dataclass(frozen=True)
class FakeNodes:
    """Starts kwok and makes its nodes."""

    launcher: Launcher
    program: Path
    folder: Path
    ports: Ports

    def start(self, api: ApiClient, num_nodes: int) -> None:
        """Start kwok if it is not running, and wait until this many nodes are Ready.

        Raises
        ------
        ClusterError
            kwok ends, or nodes are not Ready in time.
        """
        if not self.launcher.is_running("kwok"):
            self._start(api)
        api.apply(*(node_object(index) for index in range(1, num_nodes + 1)))
        self.launcher.wait_for(
            f"{num_nodes} nodes Ready",
            lambda: len(api.ready_nodes()) >= num_nodes,
            ("kwok", "kube-apiserver"),
            seconds=_READY_SECONDS,
        )

    def _start(self, api: ApiClient) -> None:
        given = [self.program.with_name(Path(name).name) for name in KWOK.files]
        stages = self.folder / "kwok-stages.yaml"
        stages.write_text("\n---\n".join(path.read_text() for path in (*given, _STAGES)))
        self.launcher.start(
            "kwok",
            (
                self.program,
                f"--kubeconfig={api.kubeconfig}",
                f"--config={stages}",
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={TAINT}=fake",
                f"--node-lease-duration-seconds={_LEASE_SECONDS}",
                "--node-ip=127.0.0.1",
                f"--server-address=127.0.0.1:{self.ports.kwok}",
            ),
        )


def node_object(index: int) -> dict[str, Any]:
    """A node with GPUs, as its kubelet would have registered it."""
    name = f"fake-{index}"
    resources = {"cpu": "32", "memory": "256Gi", "pods": "110", RESOURCE: str(GPUS_PER_NODE)}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {TAINT: "fake"},
            "labels": labels | model_of(index).labels(),
        },
        "spec": {"taints": [{"key": TAINT, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }
