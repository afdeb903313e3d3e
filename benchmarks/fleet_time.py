"""An event loop in virtual time: what waits costs no time at all, and time stands still in between.

Engines and gateways that are coroutines then run as they are: an hour of a fleet takes minutes.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jump(selectors.SelectSelector):
    """Waits for nothing but time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("bug: everything waits, and nothing will happen any more")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock jumps to whatever is due next."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jump.now


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    """Run until the work is done; what it has started is ended with it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)
