"""A control group for each node, in every hierarchy that the machine has."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from hack.cluster.errors import ClusterError

_ROOT = Path("/sys/fs/cgroup")
_REMOVE_SECONDS = 30.0


def create(name: str) -> None:
    """Make the groups of this name; those of version 1 need to be given processors and memory."""
    for hierarchy in _hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            source, target = hierarchy / setting, folder / setting
            if source.exists() and target.exists():
                target.write_text(source.read_text())


def remove(name: str) -> None:
    """Remove the groups of this name with all below; their processes must have been killed.

    Raises
    ------
    ClusterError
        A process is still in one.
    """
    deadline = time.monotonic() + _REMOVE_SECONDS
    while left := list(existing(name)):
        for folder in left:
            _remove_tree(folder)
        if time.monotonic() > deadline:
            raise ClusterError(f"control group {left[0]} does not go: a process is in it")
        time.sleep(0.02)


def existing(prefix: str) -> Iterator[Path]:
    """Groups at the top of a hierarchy whose names are or begin with this one."""
    for hierarchy in _hierarchies():
        yield from (path for path in hierarchy.glob(f"{prefix}*") if path.is_dir())


def _remove_tree(folder: Path) -> None:
    # a killed process takes a moment to leave its group: whoever calls comes again
    with contextlib.suppress(OSError):
        for child in folder.iterdir():
            if child.is_dir():
                _remove_tree(child)
        folder.rmdir()


def _hierarchies() -> list[Path]:
    """Where groups are made: the root of version 2, or each folder of version 1."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    # links such as cpu,cpuacct lead to hierarchies that are listed by themselves
    folders = [path for path in _ROOT.iterdir() if path.is_dir() and not path.is_symlink()]
    return [path for path in folders if (path / "cgroup.procs").exists()]
