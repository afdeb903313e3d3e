"""Times as users write them, such as 1h30m or 60ms."""

import re

_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")


def seconds(duration: str) -> float:
    """How many seconds a duration is; it has been checked by the API server.

    Raises
    ------
    ValueError
        It is no duration.
    """
    if not duration or _PART.sub("", duration):
        raise ValueError(f"{duration!r} is not a time such as 90s, 5m, 1h30m or 60ms")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(duration))
