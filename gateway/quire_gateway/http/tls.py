"""TLS of the clients' port: 1.2 and newer, HTTP/1.1, with files that may change at any time.

A changed pair is first put together apart. Only one that fits, and that clients take or that is no
worse than the one in force, is used, by handshakes from then on: connections that there are keep
theirs.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

from quire_gateway.errors import SettingsError
from quire_gateway.files import read_regular
from quire_gateway.http.validity import Validity, is_worse, read_validity

HANDSHAKE_SECONDS = 10.0
CHECK_SECONDS = 1.0
"""How often the files are looked at."""

_log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int], ...]


class Pair(NamedTuple):
    """A certificate chain with its key, and until when it is valid."""

    context: ssl.SSLContext
    validity: Validity


class Certificate:
    """The certificate that clients are shown.

    Parameters
    ----------
    kept
        A file with a pair that was good, for a start while these files are not.
    clock
        Unix seconds.

    Raises
    ------
    SettingsError
        They cannot be used at the start, and none was kept.
    """

    def __init__(
        self,
        chain: Path,
        key: Path,
        kept: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._chain = chain
        self._key = key
        self._clock = clock
        self._stamp = stamp_of(chain, key)
        self._waiting: Pair | None = None
        """What the files have, as long as the one in force is better."""
        self._current = load_pair(chain, key) if kept is None else load_pair(kept, kept)
        if kept is None:
            self._current.validity.tell(str(chain), clock())
        else:
            self._take_files("the TLS certificate is the last good one")
        self.context = load_pair(kept or chain, kept or key).context
        self.context.sni_callback = self._choose  # called for clients that name no server, too

    @property
    def valid_until(self) -> float:
        """When the one in force ends, in Unix seconds; infinite if nobody knows."""
        return self._current.validity.not_after

    def renew(self) -> None:
        """Look at the files, and use what they have; a bad pair leaves the one before in force."""
        stamp = stamp_of(self._chain, self._key)
        if stamp != self._stamp:
            self._stamp = stamp
            self._take_files("the TLS certificate stays as it was")
        elif self._waiting is not None:
            self._take_if_no_worse(self._waiting)

    def _take_files(self, otherwise: str) -> None:
        """Use what the files have; where that cannot be, the log says so with these words."""
        self._waiting = None
        try:
            fresh = load_pair(self._chain, self._key)
        except SettingsError as error:
            _log.error("%s: %s", otherwise, error)
            return
        if not self._take_if_no_worse(fresh):
            trouble = fresh.validity.trouble(self._clock())
            words = "%s: that of %s %s; put one that is valid there, with its key"
            _log.error(words, otherwise, self._chain, trouble)

    def _take_if_no_worse(self, fresh: Pair) -> bool:
        """Use a pair from now on, or keep it until the one in force is no better any more."""
        now = self._clock()
        if is_worse(fresh.validity, self._current.validity, now):
            self._waiting = fresh
            return False
        self._current, self._waiting = fresh, None
        fresh.validity.tell(str(self._chain), now)
        return True

    def _choose(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        handshake.context = self._current.context


def load_pair(chain: Path, key: Path) -> Pair:
    """Make of a chain and its key what connections are served with.

    Raises
    ------
    SettingsError
        They cannot be read, or are no pair.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    texts = []
    for path in (chain, key):
        try:
            texts.append(read_regular(path))
        except OSError as error:
            raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    try:
        context.load_cert_chain(chain, key, password=_refuse_password)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"{chain} and {key} are no certificate with its key, in PEM: {error}"
        ) from error
    return Pair(context, read_validity(texts[0]))


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
