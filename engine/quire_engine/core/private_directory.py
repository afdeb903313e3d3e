"""The folder of one server's sockets, which only its user can enter.

    $TMPDIR/quire-xxxxxxxx
    ├── lock           held by the server as long as it lives, however it ends
    ├── 1-in, 1-out    sockets of its first core process
    └── 2-in, 2-out    and of the next

A server that was killed leaves its folder. The next one to start removes it: a lock that can be
taken is that of a process that is gone.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from quire_engine.errors import ConfigError

_PREFIX = "quire-"
_LOCK = "lock"
_MAX_SOCKET_PATH_BYTES = 100
"""Unix sockets' paths end at 107 bytes; the file's own name takes a few."""


class PrivateDirectory:
    """A new, empty folder until `close`.

    Raises
    ------
    ConfigError
        No temporary folder can be written, or its path is too long for a socket in it.
    """

    def __init__(self) -> None:
        self.path = _make()
        self._lock: int | None = _hold_lock(self.path)
        _remove_left_behind(self.path.parent)

    def close(self) -> None:
        """Remove the folder and what is in it; a second call does nothing."""
        if self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None


def _make() -> Path:
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise ConfigError(
            "No temporary folder can be written; set TMPDIR to one that can."
        ) from error
    if len(bytes(path)) > _MAX_SOCKET_PATH_BYTES:
        path.rmdir()
        raise ConfigError(
            "The temporary folder's path is too long for a Unix socket; set TMPDIR to a shorter"
            f" one (at most {_MAX_SOCKET_PATH_BYTES - 15} characters)."
        )
    return path


def _hold_lock(folder: Path) -> int:
    """Take the folder's lock before others can see it; core processes don't inherit it."""
    hidden = folder / f".{_LOCK}"
    lock = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    hidden.rename(folder / _LOCK)
    return lock


def _remove_left_behind(parent: Path) -> None:
    """Remove the folders of this user's servers that are gone, and nothing else."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:
            continue  # no server's, another user's, or just gone
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_sockets(folder)
        except OSError:
            continue  # its server lives, or it holds what no server put there
        finally:
            os.close(lock)


def _remove_sockets(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
    (folder / _LOCK).unlink()
    folder.rmdir()
