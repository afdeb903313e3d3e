"""Secrets that live in a file: read again when it changes, never kept in the clear.

Kubernetes swaps a symbolic link when a mounted secret changes, others replace or rewrite the file:
all of them change what `stat` says of it.
"""

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from quire_engine.errors import ConfigError

_log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""A change is seen within this time."""
MAX_SECRETS = 1024
_MAX_BYTES = 1 << 20
_SECRET = re.compile(r"[!-~]{1,4096}")

Fingerprint = tuple[int, ...]


class Digests:
    """SHA-256 digests of secrets; comparing takes the same time whichever matches, or none."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._digests = tuple(digest(secret.encode()) for secret in secrets)

    def has(self, presented: bytes) -> bool:
        """Whether a secret with this digest is among them."""
        is_found = False
        for known in self._digests:
            is_found |= hmac.compare_digest(known, presented)
        return is_found


def digest(secret: bytes) -> bytes:
    """What is kept and compared in a secret's place."""
    return hashlib.sha256(secret).digest()


class SecretFile:
    """The secrets of a file, one a line; lines that begin with # are comments.

    A file that cannot be read any more keeps what it said last, for whoever replaces it may delete
    it first; one that can be read and names no secret lets nobody in.

    Raises
    ------
    ConfigError
        The file cannot be read, has none, or has a line that is no secret.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._fingerprint, secrets = _read(path)
        if not secrets:
            raise ConfigError(f"{path} has no secret in it: write one a line")
        self._digests = Digests(secrets)
        self._checked_at = clock()
        self._is_failing = False

    def has(self, presented: bytes) -> bool:
        """Whether a secret with this digest is in the file now.

        One that is unknown may be newer than the last look at the file, so that is looked at once
        more before the answer is no.
        """
        if self._clock() >= self._checked_at + CHECK_SECONDS:
            self._renew()
        if self._digests.has(presented):
            return True
        return self._renew() and self._digests.has(presented)

    def _renew(self) -> bool:
        """Read the file if it has changed; the answer says whether it was read."""
        self._checked_at = self._clock()
        try:
            if _fingerprint(self._path.stat()) == self._fingerprint:
                return False
            self._fingerprint, secrets = _read(self._path)
        except (OSError, ConfigError) as error:
            if not self._is_failing:
                reason = error.strerror if isinstance(error, OSError) else error
                _log.error("secrets stay as they were, for %s: %s", self._path, reason)
            self._is_failing = True
            return False
        if not secrets:
            _log.error("%s has no secret in it any more: nobody is let in by it", self._path)
        self._is_failing = False
        self._digests = Digests(secrets)
        _log.info("secrets were read again from %s", self._path)
        return True


def _read(path: Path) -> tuple[Fingerprint, list[str]]:
    try:
        with path.open("rb") as file:
            fingerprint = _fingerprint(os.fstat(file.fileno()))
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; give a file of secrets"
        ) from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path} is too large to be a file of secrets")
    return fingerprint, _parse(path, content)


def _parse(path: Path, content: bytes) -> list[str]:
    lines = [line.strip() for line in content.decode("latin-1").splitlines()]
    secrets = [(n, line) for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
    for number, line in secrets:
        if not _SECRET.fullmatch(line):  # which line, and never what it says
            raise ConfigError(
                f"{path}: line {number} is no secret: visible ASCII characters without a space"
            )
    if len(secrets) > MAX_SECRETS:
        raise ConfigError(f"{path} has more than {MAX_SECRETS} secrets")
    return [line for _, line in secrets]


def _fingerprint(stat: os.stat_result) -> Fingerprint:
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
