"""What a machine must have for a cluster, and how to get it."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from hack.cluster.config import Size
from hack.cluster.errors import ClusterError

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_INSTALL_SECONDS = 600

# program, or file: Debian's package
_NODE_PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "cc": "gcc",
}
IMAGE_PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}


def missing_packages(programs: dict[str, str]) -> list[str]:
    """Debian's packages of the programs that this machine lacks."""
    lacking = [package for program, package in programs.items() if not _is_there(program)]
    return list(dict.fromkeys(lacking))


def find_obstacle(size: Size, *, may_install: bool = False) -> str | None:
    """Why this machine cannot have a cluster of this size and what to do, or None if it can.

    Parameters
    ----------
    may_install
        Missing packages are no obstacle where they can be installed: for tests.
    """
    if platform.system() != "Linux":
        return (
            f"needs Linux, and this is {platform.system()}: with Docker and kind, make kind-up "
            "makes a cluster here"
        )
    if size is not Size.NODES:
        return None
    if os.geteuid() != 0:
        return (
            "needs root: real nodes live in namespaces. Run as root; SIZE=api and SIZE=kwok need "
            "none, and make kind-up uses Docker instead"
        )
    packages = missing_packages(_NODE_PROGRAMS)
    if packages and not (may_install and shutil.which("apt-get")):
        return f"needs programs. Debian and Ubuntu: apt-get install {' '.join(packages)}"
    return None


def require_size(size: Size) -> None:
    """Refuse what this machine cannot have.

    Raises
    ------
    ClusterError
        With what to do about it.
    """
    if obstacle := find_obstacle(size):
        raise ClusterError(f"a cluster of size {size} {obstacle}")


def install_packages(size: Size) -> None:
    """Install Debian's packages that a size needs and the machine lacks; needs root.

    Raises
    ------
    ClusterError
        apt refuses: its words are in the message.
    """
    if size is Size.NODES:
        install(missing_packages(_NODE_PROGRAMS))


def install(packages: list[str]) -> None:
    """Install packages by apt-get, if any are asked for.

    Raises
    ------
    ClusterError
        apt refuses: its words are in the message.
    """
    if not packages:
        return
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        ran = subprocess.run(
            ["apt-get", "--quiet", *command],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if ran.returncode != 0:
            raise ClusterError(f"apt-get {' '.join(command)} failed: {ran.stderr[-2000:]}")


def _is_there(program: str) -> bool:
    if program.startswith("/"):
        return Path(program).exists()
    return shutil.which(program, path=_PATH) is not None
