"""Random ids of requests and traces; the system is asked for many at a time."""

import os

_NUM_BYTES = 16
_AT_A_TIME = 256

_ids: list[str] = []


def random_id() -> str:
    """Return 32 hexadecimal digits."""
    if not _ids:
        digits = os.urandom(_NUM_BYTES * _AT_A_TIME).hex()
        size = 2 * _NUM_BYTES
        _ids.extend([digits[start : start + size] for start in range(0, len(digits), size)])
    return _ids.pop()
