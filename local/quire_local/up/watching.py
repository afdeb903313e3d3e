"""FILE while it is used: read again when it changes; the last good one stays in force."""

from pathlib import Path

from quire_local.up.resource_file import FileError, read_file

CHECK_SECONDS = 0.25

_Mark = tuple[int, ...] | None


class WatchedFile:
    """One file.

    Raises
    ------
    FileError
        It cannot be used at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = self._newest = self._look()
        self.resources = read_file(path)
        self.problem = ""
        """Why what the file says now is not in force; empty while it is."""

    def has_changed(self) -> bool:
        """Look at the file; whether there is news of it: other resources, or another problem.

        It is read when it is as it was at the last look: it may be half written.
        """
        mark, before = self._look(), self._newest
        self._newest = mark
        if mark == self._mark or mark != before:
            return False
        self._mark = mark
        old, old_problem = self.resources, self.problem
        try:
            self.resources, self.problem = read_file(self._path, old), ""
        except FileError as error:
            self.problem = str(error)
        return self.resources != old or self.problem != old_problem

    def _look(self) -> _Mark:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
