"""Random ids of requests and traces; the system is asked for many at a time."""

import os
from collections.abc import Iterator

_NUM_BYTES = 16
_AT_A_TIME = 256


def _make() -> Iterator[str]:
    while True:
        digits = os.urandom(_NUM_BYTES * _AT_A_TIME).hex()
        for start in range(0, len(digits), 2 * _NUM_BYTES):
            yield digits[start : start + 2 * _NUM_BYTES]


_ids = _make()


def random_id() -> str:
    """Return 32 hexadecimal digits."""
    return next(_ids)
