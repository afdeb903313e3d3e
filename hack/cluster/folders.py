"""Where everything of clusters is kept.

$QUIRE_CACHE (~/.cache/quire)
└── cluster
    ├── tools     binaries, a folder for each tool, version and platform
    ├── images    container images
    └── state     running clusters, a folder each
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hack.cluster.errors import ClusterError


def cluster_folder(name: str) -> Path:
    """Return one of the folders above; it need not exist yet.

    Raises
    ------
    ClusterError
        There is no home folder, and QUIRE_CACHE is not set.
    """
    chosen = os.environ.get("QUIRE_CACHE")
    try:
        root = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "quire"
    except RuntimeError as error:
        raise ClusterError("no home folder for the cluster: set QUIRE_CACHE") from error
    return root.absolute() / "cluster" / name


@contextlib.contextmanager
def only_one(lock: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Be the only process with this lock; it ends with the process, however that ends.

    Parameters
    ----------
    on_wait
        Called once if another process has it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_private(path: Path, content: bytes) -> None:
    """Put a file that nobody else may read in its place at once."""
    partial = path.with_name(f"{path.name}.partial")
    partial.touch(mode=0o600)
    partial.write_bytes(content)
    partial.rename(path)
