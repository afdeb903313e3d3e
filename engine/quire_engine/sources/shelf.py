"""One folder of the cache: whole files, and the records that say that they are whole."""

import os
from pathlib import Path

import msgspec

from quire_engine.execution.base import Progress
from quire_engine.sources.base import ResolvedModel, digest, require_digest
from quire_engine.sources.cache import replacing, sync_folder


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of a file in the cache; written once the file is whole."""

    sha256: str
    size: int


class Shelf:
    """Files of one version of a model: `files/NAME`, and `records/NAME.json` beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"

    def path(self, name: str) -> Path:
        """Where a file belongs, whether or not it is there."""
        return self.files / name

    def find(self, name: str, sha256: str | None, progress: Progress) -> ResolvedModel | None:
        """The file if it is there whole; read again only when a digest is asked for.

        Raises
        ------
        SourceError
            It is as it was stored, and has another digest than the one asked for.
        """
        path = self.path(name)
        record = self.record(name)
        if record is None:
            return None
        if sha256 is not None:
            found = digest(path, progress, "checking the model file")
            if found != record.sha256:
                return None
            require_digest(path, found, sha256)
        return ResolvedModel(path=path, sha256=record.sha256)

    def record(self, name: str) -> Record | None:
        """What is known of a file, if it is there with the size that it should have."""
        try:
            record = msgspec.json.decode(self._record_path(name).read_bytes(), type=Record)
            is_whole = self.path(name).stat().st_size == record.size
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None
        return record if is_whole else None

    def adopt(self, part: Path, name: str, sha256: str) -> None:
        """Give a whole, checked file its place, and record it."""
        with part.open("rb") as file:
            os.fsync(file.fileno())
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o644)
        part.rename(target)
        sync_folder(target.parent)
        self.note(name, sha256)

    def note(self, name: str, sha256: str) -> None:
        """Record a file that is in its place."""
        record = Record(sha256=sha256, size=self.path(name).stat().st_size)
        with replacing(self._record_path(name), self.folder) as target:
            target.write(msgspec.json.encode(record))

    def _record_path(self, name: str) -> Path:
        return self.folder / "records" / f"{name}.json"
