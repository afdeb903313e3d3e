"""What every model source gives, and the digests that they share."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ResolvedModel:
    """A model that is on this machine, whole."""

    path: Path
    """A model file, or a folder of them."""
    sha256: str | None
    """Digest of the file in lowercase hex, where it is known: folders have none, and a local
    file is only read for it when a digest was asked for."""
    revision: str | None = None
    """The commit that a repository's revision was resolved to; None for other sources."""


def no_progress(stage: str, fraction: float) -> None:
    """Tell nobody."""


def digest(path: Path, progress: Progress, stage: str) -> str:
    """SHA-256 of a file in lowercase hex, read in pieces."""
    hasher = hashlib.sha256()
    total = max(path.stat().st_size, 1)
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            done += len(chunk)
            progress(stage, min(done / total, 1.0))
    return hasher.hexdigest()


def require_digest(path: Path, found: str, wanted: str | None) -> None:
    """Refuse a file whose digest is not the wanted one.

    Raises
    ------
    SourceError
        The digests differ.
    """
    if wanted is not None and found != wanted.lower():
        raise SourceError(
            f"{path} has SHA-256 {found}, but {wanted.lower()} was asked for: the file is "
            "damaged or another one; get it again, or correct --sha256"
        )
