"""Routing documents from a file, for use without a cluster.

What cannot be used leaves what was read last in force, and is said in the log: each fault once.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from quire_gateway.errors import RoutingError
from quire_gateway.files import read_regular
from quire_gateway.routing.document import RoutingDocument, read_documents

CHECK_SECONDS = 1.0
"""How often the file is read, whatever `stat` says of it."""
_STAT_SECONDS = 0.1
"""How often it is looked whether it is another one: replicas come and go with it."""
_MAX_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class FileSource:
    """One file of documents; read from the event loop, for it is small and local.

    Raises
    ------
    RoutingError
        It cannot be read at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fault = ""
        self.documents, self._content = self._read()

    @property
    def is_complete(self) -> bool:
        """Whether all that there is has been seen once."""
        return True

    @property
    def is_stale(self) -> bool:
        """Whether the file says what cannot be used."""
        return bool(self._fault)

    @property
    def problem(self) -> str:
        """Why what is in force may be old, besides what the file says."""
        return ""

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Look at the file until cancelled; `on_change` is called when there is news of it."""
        mark, num_looks = self._mark(), 0
        while True:
            await asyncio.sleep(_STAT_SECONDS)
            old, mark, num_looks = mark, self._mark(), num_looks + 1
            if mark == old and num_looks * _STAT_SECONDS < CHECK_SECONDS:
                continue
            was_stale, num_looks = self.is_stale, 0
            if self.renew() or was_stale != self.is_stale:
                on_change()

    async def close(self) -> None:
        """Nothing is open."""

    def renew(self) -> bool:
        """Look at the file; the answer says whether there are other documents now."""
        try:
            documents, content = self._read()
        except RoutingError as error:
            if str(error) != self._fault:
                _log.error("routing stays as it was: %s", error)
            self._fault = str(error)
            return False
        self._fault = ""
        if content == self._content:
            return False
        self.documents, self._content = documents, content
        _log.info("routing was read again from %s", self._path)
        return True

    def _mark(self) -> tuple[int, ...] | None:
        """What changes when another file is moved here; mostly also when it is written again."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> tuple[tuple[RoutingDocument, ...], bytes]:
        try:
            content = read_regular(self._path, _MAX_BYTES + 1)
        except OSError as error:
            raise RoutingError(f"cannot read {self._path}: {error.strerror}") from None
        if len(content) > _MAX_BYTES:
            raise RoutingError(f"{self._path} is too large for routing documents")
        return read_documents(content), content
