"""The folder where downloaded models are kept, and how files come into it.

    $QUIRE_CACHE (~/.cache/quire)
    └── models/
        ├── pypi/PACKAGE/VERSION/
        ├── https/HOST/DIGEST-OF-ADDRESS/
        └── hf/ORG/REPO/                 refs/REVISION.json: the commit that it last was
            └── COMMIT/
                ├── files/NAME           a model file; its place never holds a half one
                ├── records/NAME.json    its size and digest, written last
                ├── *.part               a file on its way; taken up again where it stopped
                └── lock                 held by the one process that writes here

A file is written under another name, synced to the disk and renamed, so that a crash at any
moment leaves either no file or the whole one.
"""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from quire_engine.errors import SourceError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PARTIAL_PREFIX = "writing-"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The cache's root; it need not exist yet.

    Raises
    ------
    SourceError
        There is no home folder, and QUIRE_CACHE is not set.
    """
    if chosen := environment.get("QUIRE_CACHE"):
        return Path(chosen).expanduser().absolute()
    try:
        return Path.home() / ".cache" / "quire"
    except RuntimeError as error:
        raise SourceError(
            "there is no home folder to keep models in: set QUIRE_CACHE to a folder"
        ) from error


@contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn the operating system's refusals to store into errors that say what to do.

    Raises
    ------
    SourceError
        The disk is full, or the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        where = error.filename or folder
        if error.errno in _FULL:
            raise SourceError(
                f"no space for the model in {folder} ({reason}): free some, or set QUIRE_CACHE "
                "to a folder on a larger disk"
            ) from error
        raise SourceError(
            f"cannot store the model at {where} ({reason}): set QUIRE_CACHE to a folder that "
            "this user can write"
        ) from error


def require_space(folder: Path, name: str, needed: int) -> None:
    """Refuse before a download what would not fit after it.

    Raises
    ------
    SourceError
        The disk has less than `needed` bytes free.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SourceError(
            f"{name} needs {needed >> 20} MiB in {folder}, where {free >> 20} MiB are "
            "free: free some, or set QUIRE_CACHE to a folder on a larger disk"
        )


@contextmanager
def exclusive(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Be the only process that writes in `folder`; `on_wait` is called if there is another.

    The lock ends with the process, however it ends. What another process left half-written is
    removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        for leftover in folder.glob(_PARTIAL_PREFIX + "*"):
            leftover.unlink()
        yield


@contextmanager
def replacing(target: Path, folder: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `target` when the block ends without an error.

    `folder` is where it is written, on the same file system.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=_PARTIAL_PREFIX, dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).rename(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
