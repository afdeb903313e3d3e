"""A private folder of one run: tokens, configurations and logs. It is gone after the run.

A run that was killed leaves its folder; the next one removes it. A folder is in use for as long as
somebody holds its lock, which ends with the process.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quire_engine.sources.cache import cache_folder

_LOCK = "lock"


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new folder that nobody else may read, for as long as the block lasts."""
    root = cache_folder(os.environ) / "up"
    root.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK).open("w") as turn:  # one at a time: a new folder is not yet in use
        fcntl.flock(turn, fcntl.LOCK_EX)
        _remove_abandoned(root)
        folder = Path(tempfile.mkdtemp(dir=root, prefix="run-"))
        lock = (folder / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def write_private(path: Path, text: str | bytes) -> bool:
    """Put a whole file in place, for this user's eyes alone; whether it is another one now."""
    data = text.encode() if isinstance(text, str) else text
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    new = path.with_suffix(path.suffix + ".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    new.replace(path)
    return True


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob("run-*"):
        with suppress(OSError), (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
