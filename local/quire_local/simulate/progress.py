"""How far a simulation or a plan is, for who waits for it."""

import time
from collections.abc import Callable
from typing import TextIO

LINE_SECONDS = 30.0
"""So often there is a line where nobody sees it change."""
_REDRAW_SECONDS = 0.1


class Progress:
    """Tells of one run: on a terminal in a line that changes, elsewhere in a line now and then.

    Parameters
    ----------
    name
        Of what runs.
    of
        What there is so much of.
    stream
        Where to; never where the figures go.
    """

    def __init__(
        self,
        name: str,
        stream: TextIO,
        *,
        of: str = "the requests",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._of = of
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._period = _REDRAW_SECONDS if self._is_terminal else LINE_SECONDS
        self._clock = clock
        self._began_at = clock()
        self._next_at = self._began_at + self._period

    def __call__(self, share: float) -> None:
        """Tell the share that is done, unless it was told just now."""
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + self._period
        if self._is_terminal:
            self._write(f"\r{self._name}: {share:.0%} ")
        else:
            seconds = now - self._began_at
            self._write(f"{self._name}: {share:.0%} of {self._of} after {seconds:.0f} s\n")

    def end(self) -> None:
        """Take the line away."""
        if self._is_terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        print(text, end="", file=self._stream, flush=True)
