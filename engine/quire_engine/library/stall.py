"""Notices an engine that has work and gets nowhere."""

import logging

_log = logging.getLogger(__name__)


class StallWatch:
    """Warns once when nothing was computed for so many steps or seconds, whichever is first.

    After progress it watches anew, and may warn again.
    """

    def __init__(self, *, max_steps: int, max_seconds: float) -> None:
        self._max_steps = max_steps
        self._max_seconds = max_seconds
        self._progress: int | None = None
        self._moved_at = 0.0
        self._num_steps = 0
        self.is_stalled = False
        """Whether it has warned, and nothing was computed since."""

    def note(self, progress: int, now: float, *, has_work: bool) -> None:
        """Look after a step.

        Parameters
        ----------
        progress
            A count of all that was computed so far.
        """
        if progress != self._progress or not has_work:
            self._progress, self._moved_at = progress, now
            self._num_steps, self.is_stalled = 0, False
            return
        self._num_steps += 1
        seconds = now - self._moved_at
        is_long = self._num_steps >= self._max_steps or seconds >= self._max_seconds
        if is_long and not self.is_stalled:
            self.is_stalled = True
            _log.warning(
                "no progress for %d steps and %.1f seconds, though requests wait; a larger cache, "
                "or fewer at once, may help",
                self._num_steps,
                seconds,
            )
