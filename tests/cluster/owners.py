"""Clusters owned by another process, which a test can kill."""

import subprocess
import sys
from types import TracebackType
from typing import Self

from hack.cluster.catalogue import PROJECT
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.processes import RunningProcess, running_with
from tests.api.servers import wait_until

_OWN = """
import sys
from hack.cluster.config import Size
from hack.cluster.temporary import temporary_cluster
with temporary_cluster(sys.argv[1], Size(sys.argv[2]), int(sys.argv[3])):
    print("made", flush=True)
    sys.stdin.read()
"""


class OwnedCluster:
    """A temporary cluster of a process of its own, made when the block begins."""

    def __init__(self, name: str, size: Size, num_nodes: int = 0) -> None:
        self.cluster = Cluster(name)
        self._owner = subprocess.Popen(
            [sys.executable, "-c", _OWN, name, size, str(num_nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
        )

    def __enter__(self) -> Self:
        assert self._owner.stdout is not None
        line = self._owner.stdout.readline()
        if line != "made\n":
            self.kill_owner()
            raise AssertionError(f"the owner made no cluster and printed {line!r}")
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_owner()
        for stream in (self._owner.stdin, self._owner.stdout):
            if stream is not None:
                stream.close()

    def kill_owner(self) -> None:
        """Kill the process at once: it cannot remove anything any more."""
        self._owner.kill()
        self._owner.wait()

    def processes(self) -> list[RunningProcess]:
        """Programs of the cluster that run."""
        return running_with(self.cluster.folder)

    def wait_until_programs_are_gone(self) -> None:
        """Wait until none runs."""
        wait_until(lambda: not self.processes())
