"""Clusters that live as long as a block of code, for tests.

Their programs are killed with the process that made them, however it ends. What then lies about,
files and control groups, is removed when the next such cluster is made.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.folders import cluster_folder


@contextmanager
def temporary_cluster(name: str, size: Size, num_nodes: int = 0) -> Iterator[Cluster]:
    """Make a cluster that the block uses, and remove it afterwards.

    Raises
    ------
    ClusterError
        It cannot be made here.
    """
    remove_abandoned()
    cluster = Cluster(name, ends_with_parent=True)
    owner = _owner_file(name)
    owner.parent.mkdir(parents=True, exist_ok=True)
    # the lock ends with this process, and so tells whether somebody still has the cluster
    with owner.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            cluster.up(size, num_nodes)
            yield cluster
        finally:
            _remove(cluster)


def remove_abandoned() -> list[str]:
    """Remove temporary clusters whose process has ended; returns their names."""
    removed = []
    for owner in sorted(cluster_folder("state").glob("*.owner")):
        with owner.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(Cluster(owner.stem))
            removed.append(owner.stem)
    return removed


def _remove(cluster: Cluster) -> None:
    """Remove a cluster of this process's own, and the files that say whose it is."""
    cluster.down()
    cluster.lock.unlink(missing_ok=True)
    _owner_file(cluster.name).unlink(missing_ok=True)


def _owner_file(name: str) -> Path:
    return cluster_folder("state") / f"{name}.owner"
