"""From when until when a certificate is valid, and whether one may take another's place.

Of a chain the first one counts, which is the gateway's own.
"""

import datetime as dt
import logging
from typing import NamedTuple

SOON_SECONDS = 7 * 24 * 3600.0
"""One that ends within this is worth a warning, as the alert's rule has it, too."""

_log = logging.getLogger(__name__)


class Validity(NamedTuple):
    """In Unix seconds, both ends included."""

    not_before: float
    not_after: float

    def trouble(self, now: float) -> str:
        """Why clients refuse it at a time; empty if they do not."""
        if now < self.not_before:
            return f"is not valid before {_said(self.not_before)}"
        if now > self.not_after:
            return f"expired at {_said(self.not_after)}"
        return ""

    def tell(self, whose: str, now: float) -> None:
        """Log of one that is used from now on until when, the louder the less time there is."""
        if trouble := self.trouble(now):
            words = "the TLS certificate of %s %s, and there is no better one: clients refuse it"
            _log.error(f"{words}; put one that is valid there, with its key", whose, trouble)
        elif self.not_after - now < SOON_SECONDS:
            words = "the TLS certificate of %s is valid until %s only: renew it"
            _log.warning(words, whose, _said(self.not_after))
        else:
            words = "the TLS certificate was read from %s: it is valid until %s"
            _log.info(words, whose, _said(self.not_after))


def is_worse(fresh: Validity, current: Validity, now: float) -> bool:
    """Whether clients would refuse a certificate, and do not refuse that which is in force."""
    return bool(fresh.trouble(now)) and not current.trouble(now)


def read_validity(chain: bytes) -> Validity:
    """Read it of a chain in PEM; one without dates that can be read is valid for ever.

    OpenSSL takes forms that the reader here does not: then they are shown to clients all the same.
    """
    from cryptography import x509  # 11 MB, of use with TLS alone

    try:
        first = x509.load_pem_x509_certificate(chain)
    except ValueError as error:
        _log.warning("it is not known until when the TLS certificate is valid: %s", error)
        return Validity(0.0, float("inf"))
    return Validity(first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp())


def _said(seconds: float) -> str:
    if seconds == float("inf"):
        return "an unknown time"
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
