"""The last certificate that was good, for workers that start while its files are not.

It is in memory without a name, given to the processes of one gateway alone, like what is published.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import NamedTuple

from quire_gateway.errors import SettingsError
from quire_gateway.files import path_of, read_regular
from quire_gateway.http.tls import CHECK_SECONDS, load_pair, stamp_of
from quire_gateway.http.validity import Validity, is_worse

_log = logging.getLogger(__name__)


class _Kept(NamedTuple):
    descriptor: int
    validity: Validity


class KeptCertificate:
    """A pair of certificate and key, as it was when it last fitted.

    Raises
    ------
    SettingsError
        It does not at the start.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain, self._key = chain, key
        self._stamp = stamp_of(chain, key)
        load_pair(chain, key)  # its error names the files
        self._current = self._keep()
        self._waiting: _Kept | None = None
        """What the files have, as long as the one that is kept is better."""

    @property
    def descriptor(self) -> int:
        """Of a file with both."""
        return self._current.descriptor

    def renew(self) -> None:
        """Keep what the files have, if it fits; workers say what is wrong with it."""
        stamp = stamp_of(self._chain, self._key)
        if stamp != self._stamp:
            self._stamp = stamp
            if self._waiting is not None:
                os.close(self._waiting.descriptor)
                self._waiting = None
            try:
                self._waiting = self._keep()
            except SettingsError as error:
                _log.error("new workers get the TLS certificate of before: %s", error)
        fresh, current = self._waiting, self._current
        if fresh is not None and not is_worse(fresh.validity, current.validity, time.time()):
            self._current, self._waiting = fresh, None
            os.close(current.descriptor)

    def _keep(self) -> _Kept:
        try:
            text = read_regular(self._key) + b"\n" + read_regular(self._chain)
        except OSError as error:
            raise SettingsError(f"cannot read {error.filename}: {error.strerror}") from error
        descriptor = os.memfd_create("quire-certificate")
        try:
            os.write(descriptor, text)
            pair = load_pair(path_of(descriptor), path_of(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return _Kept(descriptor, pair.validity)


async def keep_on(certificate: KeptCertificate) -> None:
    """Look at its files now and then, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        certificate.renew()
