"""A file on its way: what has arrived, and which version of the file it belongs to."""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

_STRONG_ETAG = '"'


class Part:
    """A download that may be taken up again, in this process or the next.

    Beside it lies what its server named the version by (an entity tag, or the time of the last
    change), so that the rest of another version is never put after it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version_path = path.with_name(path.name + ".version")

    def length(self, *, trusts_length: bool) -> int:
        """How many bytes can be kept of what has arrived.

        Parameters
        ----------
        trusts_length
            Keep them even if the server named no version: a digest is checked in the end.
        """
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return 0
        return size if trusts_length or self._version() else 0

    def range_headers(self, start: int) -> dict[str, str]:
        """Headers that ask for the rest, or for the whole if it is another version by now."""
        if not start:
            return {}
        version = self._version()
        headers = {"range": f"bytes={start}-"}
        return {**headers, "if-range": version} if version else headers

    def open(self, start: int, headers: Mapping[str, str]) -> BinaryIO:
        """Write from `start` on; `headers` are the answer's, and name the version."""
        if start:
            file: BinaryIO = self.path.open("r+b")
            file.seek(start)
            return file
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._version_path.unlink(missing_ok=True)
        # emptied before the new version is noted: a crash between leaves no old bytes under it
        file = self.path.open("wb")
        if version := _version_of(headers):
            self._version_path.write_text(version, encoding="latin-1")
        return file

    def remove(self) -> None:
        """Forget what has arrived."""
        self.path.unlink(missing_ok=True)
        self._version_path.unlink(missing_ok=True)

    def _version(self) -> str:
        try:
            return self._version_path.read_text(encoding="latin-1")
        except FileNotFoundError:
            return ""


def _version_of(headers: Mapping[str, str]) -> str:
    """A strong entity tag, else the time of the last change, else nothing."""
    tag = headers.get("etag", "")
    return tag if tag.startswith(_STRONG_ETAG) else headers.get("last-modified", "")
