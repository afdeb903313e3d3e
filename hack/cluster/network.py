"""Addresses of clusters with real nodes, all inside namespaces: the machine's own stay as they are.

    machine ── 127.0.0.1:PORT ──► door ──► control plane 10.10.0.1 (br0)
                                             ├── node-1 10.10.0.11 (eth0), pods 10.244.1.0/24 (cni0)
                                             ├── node-2 10.10.0.12 (eth0), pods 10.244.2.0/24 (cni0)
                                             └── ...

Services (10.96.0.0/16) are translated on the nodes by kube-proxy; the control plane sends to them
by way of node 1. Nodes reach each other's pods through the control plane, which alone knows where
they are: so a node that joins later changes nothing on the others. No namespace has a default
route: nothing reaches out of a cluster.
"""

import subprocess

from hack.cluster.control_plane import SERVICE_RANGE
from hack.cluster.errors import ClusterError
from hack.cluster.namespaces import Namespaces

CONTROL_PLANE = "10.10.0.1"
POD_RANGE = "10.244.0.0/16"
MAX_NODES = 200
_FIRST_NODE = 10


def node_address(index: int) -> str:
    """Address of the node with this number, counted from 1."""
    return f"10.10.0.{_FIRST_NODE + index}"


def pod_range(index: int) -> str:
    """Addresses of a node's pods."""
    return f"10.244.{index}.0/24"


def control_plane_script() -> str:
    """Lines of shell that give the control plane its bridge and routes."""
    return "\n".join(
        (
            "ip link set lo up",
            "ip link add br0 type bridge",
            f"ip addr add {CONTROL_PLANE}/24 dev br0",
            "ip link set br0 up",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            # what it passes on from node to node is not to be sent directly the next time
            "echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects",
            "echo 0 > /proc/sys/net/ipv4/conf/br0/send_redirects",
            f"ip route add {SERVICE_RANGE} via {node_address(1)}",
        )
    )


def node_script(index: int) -> str:
    """Lines of shell that give a node its address and routes, once it has its eth0."""
    return "\n".join(
        (
            "ip link set lo up",
            f"ip addr add {node_address(index)}/24 dev eth0",
            "ip link set eth0 up",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            # a packet to a Service needs some route before it is translated
            f"ip route add {SERVICE_RANGE} via {CONTROL_PLANE}",
            f"ip route add {POD_RANGE} via {CONTROL_PLANE}",
        )
    )


def connect(control_plane: Namespaces, node: Namespaces, index: int) -> None:
    """Put one end of a pair of interfaces into the bridge, the other into the node as eth0.

    Raises
    ------
    ClusterError
        The kernel refuses.
    """
    # only the network is entered: the process number of the node means something out here
    command = ["nsenter", "-t", str(control_plane.pid()), "-n", "ip"]
    pair = ["type", "veth", "peer", "name", "eth0", "netns", str(node.pid())]
    _run([*command, "link", "add", node.name, "master", "br0", *pair])
    _run([*command, "link", "set", node.name, "up"])
    _run([*command, "route", "replace", pod_range(index), "via", node_address(index)])


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {ran.stderr.strip()}")
