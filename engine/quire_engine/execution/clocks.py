"""Clocks for what is simulated: real seconds, or virtual ones that cost none."""

import math
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that never go back, and a way to wait."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def sleep_until(self, deadline: float) -> None:
        """Return when `now()` is at least `deadline`; at once if it is past."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def sleep_until(self, deadline: float) -> None:
        """Sleep for what is left until `deadline`."""
        remaining = deadline - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)


class VirtualClock:
    """Time that passes only when somebody waits: an hour of traffic in seconds of work."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds, from `start` on."""
        return self._now

    def sleep_until(self, deadline: float) -> None:
        """Move on to `deadline` without waiting.

        Raises
        ------
        ValueError
            `deadline` is NaN, which would poison every later time.
        """
        if math.isnan(deadline):
            raise ValueError("a virtual clock cannot move to NaN")
        self._now = max(self._now, deadline)
