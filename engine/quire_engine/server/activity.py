"""Counts the requests being answered, so that a shutdown can wait for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from quire_engine.server.histogram import LoopCounter


class Activity:
    """How many requests are being answered; belongs to one event loop.

    Parameters
    ----------
    gauge
        Where other processes see the number.
    """

    def __init__(self, gauge: LoopCounter) -> None:
        self._gauge = gauge
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count one request for as long as the block runs."""
        self.count += 1
        self._gauge.add()
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            self._gauge.add(-1)
            if not self.count:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Return as soon as no request is being answered."""
        await self._idle.wait()
