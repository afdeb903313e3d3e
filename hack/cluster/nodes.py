"""Real nodes: kubelet, containerd and kube-proxy in namespaces of their own.

Every node sees its own folders where programs expect them (the kubelet's folder of device plugins,
for one, cannot be moved), so that all use their usual paths.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import cgroups
from hack.cluster.api import ApiClient
from hack.cluster.certificates import Authority
from hack.cluster.errors import ClusterError
from hack.cluster.gpu_nodes import model_of
from hack.cluster.namespaces import Namespaces
from hack.cluster.network import connect, node_address, node_script
from hack.cluster.node_files import NodeFiles
from hack.cluster.processes import Launcher, require

_SET_UP = Path("run/quire-set-up")
_MACHINE_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


@dataclass(frozen=True)
class NodePlan:
    """What all nodes of a cluster have to know."""

    authority: Authority
    server: str
    """The API server's URL."""


@dataclass(frozen=True)
class Node:
    """One node of a cluster."""

    launcher: Launcher
    programs: dict[str, Path]
    folder: Path
    index: int
    group: str

    @property
    def name(self) -> str:
        """As the API server knows it."""
        return f"node-{self.index}"

    @property
    def files(self) -> NodeFiles:
        """What its programs are configured by."""
        return NodeFiles(self.folder, self.name, self.index, self.group)

    @property
    def namespaces(self) -> Namespaces:
        """Where its programs run."""
        return Namespaces(self.launcher, self.name)

    @property
    def root(self) -> Path:
        """Its file system as it looks from outside."""
        return Path(f"/proc/{self.namespaces.pid()}/root")

    def start_runtime(self, init: Path, control_plane: Namespaces, plan: NodePlan) -> bool:
        """Start containerd if it is not running; returns whether it was started.

        Raises
        ------
        ClusterError
            The kernel refuses something.
        """
        self.files.write(plan.authority, plan.server)
        self._set_up(init, control_plane)
        command = (require("containerd"), f"--config={self.files.containerd}")
        return self.namespaces.start("containerd", command)

    def start_kubelet(self) -> None:
        """Start kubelet and kube-proxy if they are not running; does not wait for them."""
        labels = ",".join(f"{key}={value}" for key, value in model_of(self.index).labels().items())
        self.namespaces.start(
            "kubelet",
            (
                self.programs["kubelet"],
                f"--config={self.files.kubelet}",
                f"--kubeconfig={self.files.kubelet_user}",
                f"--hostname-override={self.name}",
                f"--node-ip={node_address(self.index)}",
                f"--node-labels={labels}",
            ),
        )
        self.namespaces.start(
            "kube-proxy", (self.programs["kube-proxy"], f"--config={self.files.kube_proxy}")
        )

    def wait_for_runtime(self) -> None:
        """Wait until containerd takes images.

        Raises
        ------
        ClusterError
            It ends, or it takes too long.
        """
        role = f"{self.name}/containerd"
        self.launcher.wait_for(f"containerd of {self.name}", self._has_containerd, (role,))

    def load_image(self, archive: Path) -> None:
        """Give the node an image, from an archive as `docker save` writes it.

        Raises
        ------
        ClusterError
            containerd refuses it.
        """
        ran = self.namespaces.run(
            require("ctr"), "--namespace=k8s.io", "images", "import", str(archive)
        )
        if ran.returncode != 0:
            raise ClusterError(f"{self.name} does not take {archive}: {ran.stderr.strip()}")

    def wait_until_ready(self, api: ApiClient) -> None:
        """Wait until the API server says that it is Ready.

        Raises
        ------
        ClusterError
            A program has ended, or it takes too long.
        """
        roles = [f"{self.name}/{program}" for program in ("containerd", "kubelet", "kube-proxy")]
        self.launcher.wait_for(f"{self.name} Ready", lambda: self.name in api.ready_nodes(), roles)

    def remove(self) -> None:
        """Kill all that runs on it, and remove its files; the API server is not told."""
        self.namespaces.remove()
        cgroups.remove(self.group)
        shutil.rmtree(self.folder)

    def _set_up(self, init: Path, control_plane: Namespaces) -> None:
        """Make namespaces, interfaces and mounts; what was left half done is made anew."""
        namespaces = self.namespaces
        if not namespaces.create(init):
            if (self.root / _SET_UP).exists():
                return
            namespaces.remove()
            namespaces.create(init)
        cgroups.create(self.group)
        connect(control_plane, namespaces, self.index)
        namespaces.run_script(
            f"{self._mount_script()}\n{node_script(self.index)}\ntouch /{_SET_UP}"
        )

    def _mount_script(self) -> str:
        lines = [
            f"hostname {self.name}",
            "mount -t tmpfs tmpfs /run",
            "mkdir /run/node /run/settings",
            f"mount --bind {self.folder} /run/node",
            "mount -t tmpfs tmpfs /var/lib",
            "mount -t tmpfs tmpfs /var/log",
            "mkdir /var/lib/cni",
        ]
        for name in ("kubelet", "containerd"):
            lines += [
                f"mkdir -p /run/node/var/{name} /var/lib/{name}",
                f"mount --bind /run/node/var/{name} /var/lib/{name}",
            ]
        # the kubelet wants to write these, and they are the whole machine's
        for setting in _MACHINE_SETTINGS:
            copy = f"/run/settings/{setting.replace('/', '-')}"
            lines += [
                f"cat /proc/sys/{setting} > {copy}",
                f"mount --bind {copy} /proc/sys/{setting}",
            ]
        return "\n".join(lines)

    def _has_containerd(self) -> bool:
        """Whether containerd answers."""
        ran = self.namespaces.run(require("ctr"), "--connect-timeout=1s", "version")
        return ran.returncode == 0
