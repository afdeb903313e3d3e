"""What clusters are made of: built in the background while other tests run."""

import shutil
import subprocess
import sys
from collections.abc import Collection

from hack.cluster.binaries import missing_tools, provide_programs
from hack.cluster.catalogue import PROJECT
from hack.cluster.config import Size
from hack.cluster.requirements import find_obstacle, install_packages
from hack.cluster.sizes import programs_of

CLUSTER_TIERS = {"cluster": (Size.API, Size.KWOK), "nodes": (Size.NODES,)}
"""Sizes of the clusters that a tier's tests use."""
_BESIDES = {"cluster": ("helm",)}
"""Programs that some of a tier's tests need, and the others do without."""


def why_no_cluster(size: Size) -> str | None:
    """Why this machine cannot have a cluster of this size, or None if it can."""
    return find_obstacle(size, may_install=True)


def has_to_build(tier: str) -> bool:
    """Whether something that a tier's tests need is missing."""
    return bool(missing_tools([*_programs([tier]), *_BESIDES.get(tier, ())]))


class Background:
    """Builds what the tests of these tiers need, and takes no processor from others meanwhile."""

    def __init__(self, tiers: Collection[str]) -> None:
        self.sizes = [
            size for tier in CLUSTER_TIERS if tier in tiers for size in CLUSTER_TIERS[tier]
        ]
        self.programs = _programs(tiers)
        self._process: subprocess.Popen[bytes] | None = None
        besides = [name for tier in tiers for name in _BESIDES.get(tier, ())]
        self.missing = missing_tools([*self.programs, *besides])
        if self.missing:
            programs = (*self.programs, *besides)
            self._process = subprocess.Popen(
                [*_modest(), sys.executable, "-m", "hack.cluster", "build", *programs],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def finish(self) -> None:
        """Wait until all is there, and say how far it is.

        Raises
        ------
        ClusterError
            Something cannot be built or installed; the message has the reason.
        """
        for size in self.sizes:
            install_packages(size)
        provide_programs(self.programs)
        self.stop()

    def stop(self) -> None:
        """End the build if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _programs(tiers: Collection[str]) -> list[str]:
    sizes = [size for tier in CLUSTER_TIERS if tier in tiers for size in CLUSTER_TIERS[tier]]
    return list(dict.fromkeys(name for size in sizes for name in programs_of(size)))


def _modest() -> list[str]:
    """What stands before a command that others come before, and that ends with its parent."""
    command = ["nice", "-n", "19"]
    return [*command, "setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else command
