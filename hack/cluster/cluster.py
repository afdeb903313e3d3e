"""One cluster: making it, finding it again, and removing it without a trace.

    state/NAME
    ├── config.json   what it is to be
    ├── kubeconfig    the administrator's
    ├── pki           its certificate authority
    ├── logs          a file for each program
    ├── etcd          its objects
    └── nodes         files and containers of real nodes

Whether a program runs is never written down (see processes.py), so `up` can be called in any
state: it starts what is missing and leaves alone what runs.
"""

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from hack.cluster import cgroups
from hack.cluster.api import ADMIN, ApiClient
from hack.cluster.binaries import find_program, provide_programs
from hack.cluster.certificates import Authority
from hack.cluster.config import ClusterConfig, Size, choose_ports, load, make_command
from hack.cluster.control_plane import ControlPlane
from hack.cluster.errors import ClusterError
from hack.cluster.folders import cluster_folder, only_one
from hack.cluster.kubeconfig import write_kubeconfig
from hack.cluster.kwok import FakeNodes
from hack.cluster.processes import Launcher
from hack.cluster.real_nodes import RealNodes
from hack.cluster.requirements import require_size
from hack.cluster.sizes import programs_of

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


class Cluster:
    """A cluster by name, whether it exists or not.

    Parameters
    ----------
    ends_with_parent
        Its programs are killed when this process ends, however it ends.
    """

    def __init__(self, name: str = "default", *, ends_with_parent: bool = False) -> None:
        if not _NAME.fullmatch(name):
            raise ClusterError(
                f"{name!r} cannot name a cluster: small letters, digits and '-', 31 at most"
            )
        self.name = name
        self.folder = cluster_folder("state") / name
        self.launcher = Launcher(self.folder, self.folder / "logs", ends_with_parent)
        self.authority = Authority(self.folder / "pki")

    @property
    def config(self) -> ClusterConfig:
        """What it was made as.

        Raises
        ------
        ClusterError
            There is no such cluster.
        """
        if (config := load(self.folder / "config.json")) is None:
            up = make_command("up", self.name)
            raise ClusterError(f"there is no cluster {self.name}: {up} makes one")
        return config

    @property
    def lock(self) -> Path:
        """Held by the process that makes or removes it."""
        return self.folder.with_name(f"{self.name}.lock")

    @property
    def exists(self) -> bool:
        """Whether it was made, and not removed."""
        return (self.folder / "config.json").exists()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def api(self) -> ApiClient:
        """Clients of its API server."""
        if (kubectl := find_program("kubectl")) is None:
            raise ClusterError("kubectl is not built: make cluster-up builds it")
        return ApiClient(kubectl, self.kubeconfig, self.authority, self.config.ports.api)

    @property
    def real(self) -> RealNodes:
        """Its real nodes, and what else needs namespaces; for clusters of size `nodes`."""
        config = self.config
        programs = {
            name: path
            for name in programs_of(config.size)
            if (path := find_program(name)) is not None
        }
        return RealNodes(self.launcher, programs, self.folder, self.authority, config)

    def up(self, size: Size, num_nodes: int) -> None:
        """Make the cluster, or start what of it is not running, and the nodes that are new.

        Raises
        ------
        ClusterError
            The machine lacks something, or the cluster exists and is of another size, or larger.
        """
        require_size(size)
        programs = provide_programs(programs_of(size))
        with only_one(self.lock):
            config = self._configure(size, num_nodes)
            self.authority.create()
            server = f"https://127.0.0.1:{config.ports.api}"
            write_kubeconfig(self.kubeconfig, self.authority, server, ADMIN, group="system:masters")
            if size is Size.NODES:
                self.real.start(self.api)
            else:
                self._start_on_machine(config, programs)

    def down(self) -> None:
        """Kill its programs and remove all that it left; nothing happens if there is nothing."""
        with only_one(self.lock):
            self.launcher.kill()
            cgroups.remove(group_prefix(self.name))
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.folder.exists():
                raise ClusterError(f"{self.folder} cannot be removed: remove it as root")

    def remove_node(self, name: str) -> None:
        """Remove the last of its real nodes, as if it had been given back.

        Raises
        ------
        ClusterError
            It is another one: nodes are numbered.
        """
        with only_one(self.lock):
            last = self.real.nodes[-1]
            if name != last.name or last.index == 1:
                raise ClusterError(f"only the last node can be removed, and {name} is not it")
            last.remove()
            self.api.call("delete", "node", name, "--ignore-not-found")
            config = self.config
            fewer = dataclasses.replace(config, num_nodes=config.num_nodes - 1)
            fewer.save(self.folder / "config.json")

    def _configure(self, size: Size, num_nodes: int) -> ClusterConfig:
        wanted = num_nodes if size is not Size.API else 0
        path = self.folder / "config.json"
        if (found := load(path)) is not None:
            if found.size is not size or found.num_nodes > wanted:
                raise ClusterError(
                    f"cluster {self.name} is of size {found.size} with {found.num_nodes} nodes: "
                    f"it can only get more. {make_command('down', self.name)} removes it"
                )
            config = dataclasses.replace(found, num_nodes=wanted)
        else:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            config = ClusterConfig(self.name, size, wanted, choose_ports())
        config.save(path)
        return config

    def _start_on_machine(self, config: ClusterConfig, programs: dict[str, Path]) -> None:
        """Start a cluster that has no real nodes: it needs no namespaces."""
        control_plane = ControlPlane(
            self.launcher,
            programs,
            self.folder,
            self.authority,
            config.ports,
            address="127.0.0.1",
            place=None,
        )
        control_plane.start_server()
        control_plane.start_controllers(self.api, with_scheduler=config.size is Size.KWOK)
        if config.size is Size.KWOK:
            nodes = FakeNodes(self.launcher, programs["kwok"], self.folder, config.ports)
            nodes.start(self.api, config.num_nodes)


def group_prefix(name: str) -> str:
    """What the names of a cluster's control groups begin with; no other cluster's do."""
    return f"quire.{name}."


def all_clusters() -> Iterator[Cluster]:
    """Those that exist."""
    for path in sorted(cluster_folder("state").glob("*/config.json")):
        yield Cluster(path.parent.name)
