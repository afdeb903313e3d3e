"""Killing what a cluster is made of, without a word."""

from hack.cluster.cluster import Cluster
from hack.cluster.processes import require
from tests.nodes.services import Body, node_of


def kill_container(cluster: Cluster, pod: Body) -> None:
    """Kill the first process of a pod's container; the kernel ends the others in it."""
    node = cluster.real.node(node_of(pod)).namespaces
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    listed = node.run(require("ctr"), "--namespace=k8s.io", "tasks", "list")
    rows = (line.split() for line in listed.stdout.splitlines())
    pid = next(row[1] for row in rows if row[0] == container)
    killed = node.run(require("kill"), "-KILL", pid)
    assert killed.returncode == 0, killed.stderr


def kill_kubelet(cluster: Cluster, node: str) -> None:
    """Kill a node's kubelet; its containers go on."""
    cluster.launcher.kill(f"{node}/kubelet")


def kill_node(cluster: Cluster, node: str) -> None:
    """Kill a node's first process, and with it all that runs there."""
    cluster.real.node(node).namespaces.remove()


def cut_off(cluster: Cluster, node: str, *, is_cut: bool) -> None:
    """Pull a node's cable, or put it in again; all that runs there goes on."""
    state = "down" if is_cut else "up"
    done = cluster.real.place.run(require("ip"), "link", "set", node, state)
    assert done.returncode == 0, done.stderr


def restarts(pod: Body) -> int:
    """How often its container was started again."""
    statuses = pod["status"].get("containerStatuses", [])
    return sum(one["restartCount"] for one in statuses)
