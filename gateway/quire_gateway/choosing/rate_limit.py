"""So many a minute: a bucket that fills evenly and holds a minute's worth."""

_SECONDS = 60.0


class RateLimit:
    """One limit of one key.

    Parameters
    ----------
    per_minute
        How many; above 0.
    """

    __slots__ = ("_at", "_level", "_per_minute")

    def __init__(self, per_minute: float, now: float) -> None:
        self._per_minute = per_minute
        self._level = per_minute
        self._at = now

    def change(self, per_minute: float, now: float) -> None:
        """Allow so many from now on; the part that was used of a minute's worth stays used."""
        self._level = self._level_at(now) * per_minute / self._per_minute
        self._per_minute, self._at = per_minute, max(now, self._at)

    def share_left(self, now: float) -> float:
        """Return what share of a minute's worth may be taken; below 0 where too much was."""
        return self._level_at(now) / self._per_minute

    def resume(self, share: float, at: float) -> None:
        """Go on where another one was at a moment, which may be past."""
        self._level, self._at = share * self._per_minute, at

    def seconds_until(self, amount: float, now: float) -> float:
        """Return how long it takes until `amount` may be taken; 0 if it may now.

        More than a minute's worth may be taken when the bucket is full, or it never could.
        """
        missing = min(amount, self._per_minute) - self._level_at(now)
        return max(missing, 0.0) * _SECONDS / self._per_minute

    def take(self, amount: float, now: float) -> None:
        """Take so much; what was too little is paid back by waiting longer afterwards."""
        self._level = self._level_at(now) - amount
        self._at = max(now, self._at)

    def _level_at(self, now: float) -> float:
        passed = max(now - self._at, 0.0)
        return min(self._level + passed * self._per_minute / _SECONDS, self._per_minute)
