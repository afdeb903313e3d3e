"""Files that others write while the gateway serves."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most_bytes: int = -1) -> bytes:
    """Return what a file has, at the most so many bytes of it.

    Raises
    ------
    OSError
        It cannot be read, or is none: to open a pipe would wait for whoever writes to it, and
        nobody would be served meanwhile.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read(most_bytes)


def path_of(descriptor: int) -> Path:
    """Return where this process reads a file that it has open."""
    return Path(f"/proc/self/fd/{descriptor}")
