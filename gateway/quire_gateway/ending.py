"""How a process of the gateway ends.

    signal ── grace ─────────── no new requests ── answers end ── deadline ── exit 0
    /readyz is 503              503

The grace lets load balancers notice; requests are answered, each as the last one of its connection:
one that is closed while it is idle may be used in that moment. After Ctrl-C there is no grace. A
second signal goes to the deadline at once.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress

from quire_gateway.http.pool import CONNECT_SECONDS
from quire_gateway.http.port import Port, SharedBounds

_POLL_SECONDS = 0.05
LAST_WORDS_SECONDS = CONNECT_SECONDS + 0.5

_log = logging.getLogger(__name__)


class Ending:
    """Knows whether this process was told to end, and how soon."""

    def __init__(self) -> None:
        self.first, self._second = asyncio.Event(), asyncio.Event()
        self._has_grace = True
        self.has_failed = False

    def watch_signals(self) -> None:
        """Take SIGTERM and SIGINT for it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.note, number)

    def note(self, number: signal.Signals) -> None:
        """It was told."""
        if self.first.is_set():
            self._second.set()
            return
        self._has_grace = number != signal.SIGINT
        self.first.set()

    def hurry(self) -> None:
        """Nobody is there who would wait for it."""
        self.note(signal.SIGINT)
        self._second.set()

    def watch(self, task: asyncio.Task[None]) -> None:
        """End when what runs beside requests has failed: whoever started this does it anew."""
        task.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.critical("the gateway ends after a failure", exc_info=task.exception())
            self.has_failed = True
            self.first.set()

    @property
    def is_told(self) -> bool:
        """Whether it was told, or has to."""
        return self.first.is_set()

    @property
    def is_urgent(self) -> bool:
        """Whether it was told twice."""
        return self._second.is_set()

    async def give_grace(self, bounds: SharedBounds, seconds: float) -> None:
        """Let load balancers notice, and whoever keeps connections leave them one by one."""
        bounds.is_leaving = True
        if self._has_grace:
            await self.pause(seconds)

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the second signal."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._second.wait()

    async def finish_answers(
        self, port: Port, bounds: SharedBounds, seconds: float, end_answers: Callable[[], None]
    ) -> None:
        """Take no more requests, and wait for the answers that are given.

        Parameters
        ----------
        seconds
            So long; who is left then is told.
        end_answers
            Tells those: an error event where a stream has begun, 503 before that. A request that
            is on its way to an engine is told once it got there, or did not; hence, and for
            clients that are slow to read, it is called until none is left or time is up.
        """
        bounds.is_closing = True
        port.close()
        for connection in list(bounds.connections):
            connection.close_when_idle()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while bounds.connections and loop.time() < deadline and not self.is_urgent:
            await self.pause(_POLL_SECONDS)
        deadline = loop.time() + LAST_WORDS_SECONDS
        while True:
            end_answers()
            if not bounds.connections or loop.time() > deadline:
                return
            await asyncio.sleep(_POLL_SECONDS)
