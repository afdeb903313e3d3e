"""TLS of the clients' port: 1.2 and newer, HTTP/1.1, with files that may change at any time.

A changed pair is first put together apart. Only one that fits is used, by handshakes from then on:
connections that there are keep theirs.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import NoReturn

from quire_gateway.errors import SettingsError
from quire_gateway.files import read_regular

HANDSHAKE_SECONDS = 10.0
CHECK_SECONDS = 1.0
"""How often the files are looked at."""

_log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int], ...]


class Certificate:
    """A certificate chain with its key.

    Parameters
    ----------
    kept
        A file with a pair that was good, for a start while these files are not.

    Raises
    ------
    SettingsError
        They cannot be used at the start, and none was kept.
    """

    def __init__(self, chain: Path, key: Path, kept: Path | None = None) -> None:
        self._chain = chain
        self._key = key
        self._stamp = stamp_of(chain, key)
        try:
            self._current = load_pair(chain, key)
        except SettingsError as error:
            if kept is None:
                raise
            _log.error("the TLS certificate is the last good one: %s", error)
            chain = key = kept
            self._current = load_pair(chain, key)
        self.context = load_pair(chain, key)
        self.context.sni_callback = self._choose  # called for clients that name no server, too

    def renew(self) -> None:
        """Look at the files, and use what they have; a bad pair leaves the one before in force."""
        stamp = stamp_of(self._chain, self._key)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._current = load_pair(self._chain, self._key)
        except SettingsError as error:
            _log.error("the TLS certificate stays as it was: %s", error)
        else:
            _log.info("the TLS certificate was read again from %s", self._chain)

    def _choose(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        handshake.context = self._current


def load_pair(chain: Path, key: Path) -> ssl.SSLContext:
    """Make of a chain and its key what connections are served with.

    Raises
    ------
    SettingsError
        They cannot be read, or are no pair.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for path in (chain, key):
        try:
            read_regular(path)
        except OSError as error:
            raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    try:
        context.load_cert_chain(chain, key, password=_refuse_password)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"{chain} and {key} are no certificate with its key, in PEM: {error}"
        ) from error
    return context


def stamp_of(*paths: Path) -> Stamp:
    """What tells that a file is another one; mounted Secrets change by a link."""
    stamps = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            stamps.append((0, 0, 0))
        else:
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamps)


async def keep_renewed(certificate: Certificate | None) -> None:
    """Look at the certificate's files now and then, until cancelled."""
    while certificate is not None:
        await asyncio.sleep(CHECK_SECONDS)
        certificate.renew()


def _refuse_password() -> NoReturn:
    raise SettingsError("the TLS key is encrypted: give one that is not")
