"""How long things took, for whoever waits for them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Times:
    """Seconds by what was done, in the order in which it was begun."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def start(self, what: str) -> None:
        """It begins."""
        self._began[what] = time.monotonic()

    def stop(self, what: str) -> None:
        """It is done."""
        self._took[what] = time.monotonic() - self._began[what]

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """What the block does."""
        self.start(what)
        yield
        self.stop(what)

    def table(self) -> str:
        """A line for each, and how busy the machine is."""
        done = [what for what in self._began if what in self._took]
        lines = [f"  {what:<56}{self._took[what]:8.1f} s" for what in done]
        busy = " ".join(f"{load:.1f}" for load in os.getloadavg())
        lines.append(f"  ({os.cpu_count()} cores; load of the last 1, 5, 15 minutes: {busy})")
        return "\n".join(["", "from nothing to an answer", *lines])
