"""Progress of loading for whoever watches the terminal or the log."""

import logging
import time
from collections.abc import Callable
from typing import Literal, TextIO

from quire_engine.execution.base import Progress
from quire_engine.protocol.state import Loading

_LOG_INTERVAL_SECONDS = 5.0
"""Where lines cannot be rewritten, a stage is reported at most this often."""


def noting(
    phase: Literal["fetching", "loading"], note: Callable[[Loading], None], report: Progress
) -> Progress:
    """Note how far a phase has come, for `GET /state`, and report it as before."""

    def progress(stage: str, fraction: float) -> None:
        note(Loading(phase=phase, stage=stage, fraction=min(max(fraction, 0.0), 1.0)))
        report(stage, fraction)

    return progress


class ProgressRecords:
    """Logs stages and percentages: where machines read, a record now and then."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._stage = ""
        self._logged_at = 0.0

    def __call__(self, stage: str, fraction: float) -> None:
        """Log how far `stage` has come, a fraction in [0, 1]."""
        now = time.monotonic()
        if stage != self._stage or now > self._logged_at + _LOG_INTERVAL_SECONDS:
            self._logged_at, self._stage = now, stage
            self._log.info("%s: %.0f %%", stage, 100 * fraction)


class ProgressLines:
    """Writes stages and percentages: one changing line on a terminal, few lines into a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._stage = ""
        self._shown_at = 0.0

    def __call__(self, stage: str, fraction: float) -> None:
        """Show how far `stage` has come, a fraction in [0, 1]."""
        now = time.monotonic()
        is_new = stage != self._stage
        if not (is_new or self._is_terminal or now > self._shown_at + _LOG_INTERVAL_SECONDS):
            return
        self._shown_at, self._stage = now, stage
        line = f"quire: {stage}: {fraction:.0%}"
        if not self._is_terminal:
            self._stream.write(f"{line}\n")
        else:
            ending = "\n" if fraction >= 1.0 else ""
            self._stream.write(f"\r\x1b[K{line}{ending}")
        self._stream.flush()
