"""A volume of a node: what lies on this machine, for pods that an image would be too large for."""

import shlex
from pathlib import Path
from typing import Any

from hack.cluster.cluster import Cluster

Body = dict[str, Any]


def provide(cluster: Cluster, node: str, name: str, content: dict[str, Path]) -> None:
    """Show files and folders of this machine, by the names they are to have, on one node.

    They are mounted in the node's own namespaces, so nothing is copied and all goes with the node.
    """
    root = f"/run/volumes/{name}"
    lines = [f"mkdir -p {root}", f"chmod 1777 {root}"]
    for inside, source in content.items():
        target, path = f"{root}/{inside}", shlex.quote(str(source))
        lines.append(f"mkdir -p {target}" if source.is_dir() else f"touch {target}")
        lines.append(f"mount --bind {path} {target}")
    cluster.real.node(node).namespaces.run_script("\n".join(lines))


def claimed(node: str, name: str, namespace: str) -> list[Body]:
    """The volume and its claim, which pods that may be on this node can mount."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    volume = common | {
        "capacity": {"storage": "10Gi"},
        "hostPath": {"path": f"/run/volumes/{name}", "type": "Directory"},
        "nodeAffinity": affinity,
    }
    claim = common | {"volumeName": name, "resources": {"requests": {"storage": "10Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": volume,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"namespace": namespace, "name": name},
            "spec": claim,
        },
    ]
