"""Clusters with real nodes: control plane, nodes and what pods need, each in namespaces."""

import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import dns, ingress
from hack.cluster.api import ApiClient
from hack.cluster.catalogue import PROJECT
from hack.cluster.certificates import Authority
from hack.cluster.config import ClusterConfig
from hack.cluster.control_plane import ControlPlane
from hack.cluster.errors import ClusterError
from hack.cluster.images import basic_images
from hack.cluster.namespaces import Namespaces
from hack.cluster.native_build import build_init
from hack.cluster.network import CONTROL_PLANE, MAX_NODES, control_plane_script
from hack.cluster.nodes import Node, NodePlan
from hack.cluster.processes import Launcher

_SET_UP = Path("run/quire-set-up")


@dataclass(frozen=True)
class RealNodes:
    """Starts a cluster's namespaces and what runs in them."""

    launcher: Launcher
    programs: dict[str, Path]
    folder: Path
    authority: Authority
    config: ClusterConfig

    @property
    def place(self) -> Namespaces:
        """The control plane's namespaces."""
        return Namespaces(self.launcher, "control-plane")

    @property
    def nodes(self) -> list[Node]:
        """All nodes."""
        return [self._node(index) for index in range(1, self.config.num_nodes + 1)]

    def node(self, name: str) -> Node:
        """Find a node by name.

        Raises
        ------
        ClusterError
            There is no such node.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise ClusterError(f"there is no {name}: nodes are {', '.join(n.name for n in self.nodes)}")

    def start(self, api: ApiClient) -> None:
        """Start what is not running, and wait until every node is Ready.

        What waits for nothing comes first, so that the programs start side by side.

        Raises
        ------
        ClusterError
            A program ends, or the kernel refuses something.
        """
        if self.config.num_nodes > MAX_NODES:
            raise ClusterError(f"{MAX_NODES} real nodes at most: SIZE=kwok has room for more")
        init = build_init()
        images = basic_images()
        self._set_up(init)
        control_plane = ControlPlane(
            self.launcher,
            self.programs,
            self.folder,
            self.authority,
            self.config.ports,
            address=CONTROL_PLANE,
            place=self.place,
        )
        control_plane.start_server()
        self._open_door()
        plan = NodePlan(self.authority, control_plane.server)
        new = [node for node in self.nodes if node.start_runtime(init, self.place, plan)]
        control_plane.start_controllers(api, with_scheduler=True)
        self._load(images, new)
        for node in self.nodes:
            node.start_kubelet()
        self._start_gpus()
        self._start_services(api, control_plane.server)
        for node in self.nodes:
            node.wait_until_ready(api)

    def load_image(self, archive: Path) -> None:
        """Give every node an image."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.load_image(archive), self.nodes))

    def set_unhealthy(self, devices: dict[str, list[str]]) -> None:
        """Make these GPUs of these nodes unhealthy, and all others healthy."""
        partial = self.folder / "nodes" / "unhealthy.partial"
        partial.write_text(json.dumps(devices))
        partial.rename(self.folder / "nodes" / "unhealthy.json")

    def _node(self, index: int) -> Node:
        return Node(
            self.launcher,
            self.programs,
            self.folder / "nodes" / f"node-{index}",
            index,
            f"quire.{self.config.name}.node-{index}",
        )

    def _set_up(self, init: Path) -> None:
        """Make the control plane's namespaces; nodes that hung on earlier ones go with them."""
        is_new = self.place.create(init)
        mark = Path(f"/proc/{self.place.pid()}/root") / _SET_UP
        if not is_new and mark.exists():
            return
        for namespaces in (*(node.namespaces for node in self.nodes), self.place):
            namespaces.remove()
        self.place.create(init)
        script = control_plane_script()
        self.place.run_script(f"mount -t tmpfs tmpfs /run\n{script}\ntouch /{_SET_UP}")

    def _open_door(self) -> None:
        """Lead connections to the loopback address in: the door's sockets are opened out here."""
        targets = {
            self.config.ports.api: f"{CONTROL_PLANE}:{self.config.ports.api}",
            self.config.ports.ingress: f"{CONTROL_PLANE}:{ingress.PORT}",
        }
        if self.launcher.is_running(f"{self.place.name}/door"):
            return
        sockets = [socket.create_server(("127.0.0.1", port)) for port in targets]
        numbers = [opened.fileno() for opened in sockets]
        pairs = [f"{n}={target}" for n, target in zip(numbers, targets.values(), strict=True)]
        command = (sys.executable, "-m", "hack.cluster.door", *pairs)
        self.place.start("door", command, environment=_python(), keep_open=numbers)
        for opened in sockets:
            opened.close()

    def _load(self, images: list[Path], nodes: list[Node]) -> None:
        def load_all(node: Node) -> None:
            node.wait_for_runtime()
            for image in images:
                node.load_image(image)

        with ThreadPoolExecutor() as pool:
            list(pool.map(load_all, nodes))

    def _start_gpus(self) -> None:
        command = (sys.executable, "-m", "hack.cluster.gpu_plugin", self.folder / "nodes")
        self.place.start("gpu-plugin", command, environment=_python())

    def _start_services(self, api: ApiClient, server: str) -> None:
        programs = self.programs
        way_in = ingress.Ingress(self.place, programs["contour"], programs["envoy"], self.folder)
        api.apply(*dns.objects())
        way_in.install(api, self.authority)
        dns.Dns(self.place, programs["coredns"], self.folder).start(self.authority, server)
        way_in.start(self.authority, server)
        way_in.wait_until_ready()


def _python() -> dict[str, str]:
    """What a Python program of this project needs in another working folder."""
    return {"PYTHONPATH": os.fspath(PROJECT)}
