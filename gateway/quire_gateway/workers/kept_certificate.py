"""The last certificate that was good, for workers that start while its files are not.

It is in memory without a name, given to the processes of one gateway alone, like what is published.
"""

import asyncio
import logging
import os
from pathlib import Path

from quire_gateway.errors import SettingsError
from quire_gateway.files import read_regular
from quire_gateway.http.tls import CHECK_SECONDS, load_pair, stamp_of

_log = logging.getLogger(__name__)


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
        self.descriptor = self._keep()
        """Of a file with both."""

    def renew(self) -> None:
        """Keep what the files have, if it fits; workers say what is wrong with it."""
        stamp = stamp_of(self._chain, self._key)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            fresh = self._keep()
        except SettingsError as error:
            _log.error("new workers get the TLS certificate of before: %s", error)
            return
        os.close(self.descriptor)
        self.descriptor = fresh

    def _keep(self) -> int:
        try:
            text = read_regular(self._key) + b"\n" + read_regular(self._chain)
        except OSError as error:
            raise SettingsError(f"cannot read {error.filename}: {error.strerror}") from error
        descriptor = os.memfd_create("quire-certificate")
        try:
            os.write(descriptor, text)
            load_pair(path_of(descriptor), path_of(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def path_of(descriptor: int) -> Path:
    """Return where this process reads a file that it has open."""
    return Path(f"/proc/self/fd/{descriptor}")


async def keep_on(certificate: KeptCertificate) -> None:
    """Look at its files now and then, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        certificate.renew()
