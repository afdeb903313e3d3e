"""Taking the engine out of service and back, on an operator's word.

POST /drain ──► draining: /readyz is 503, new requests get 503, running ones finish
                   │  │
DELETE /drain ◄────┘  └──► after `seconds`, if given: what still runs ends with an error
"""

import asyncio
from collections.abc import Callable


class Drain:
    """Whether a drain was asked for; belongs to one event loop."""

    def __init__(self, on_deadline: Callable[[], None]) -> None:
        self.is_on = False
        self._on_deadline = on_deadline
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float | None) -> None:
        """Take no more requests; a new call replaces the time limit of the one before."""
        self._cancel_timer()
        self.is_on = True
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_deadline)

    def undo(self) -> None:
        """Take requests again."""
        self._cancel_timer()
        self.is_on = False

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
