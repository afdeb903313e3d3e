"""Counts requests from their heads to the ends of their answers, so that a shutdown can wait.

prepare    the body comes, is checked and made into tokens; a drain's deadline ends it here
track      the engine has it; a drain's deadline ends it there
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from quire_engine.server.errors import ApiError
from quire_engine.server.histogram import LoopCounter


class Activity:
    """How many requests are here; belongs to one event loop.

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
        self._preparing: set[asyncio.Timeout] = set()

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

    @asynccontextmanager
    async def prepare(self) -> AsyncIterator[None]:
        """Count one request while it is read and made ready, which `give_up` ends.

        Raises
        ------
        ApiError
            503: it was ended.
        """
        limit = asyncio.timeout(None)
        self._preparing.add(limit)
        try:
            with self.track():
                async with limit:
                    yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise ApiError(
                503,
                "The server was drained before it could begin with this request; send it to"
                " another one.",
                code="draining",
                retry_after_seconds=1.0,
            ) from None
        finally:
            self._preparing.discard(limit)

    def give_up(self) -> None:
        """End the requests that are being prepared."""
        now = asyncio.get_running_loop().time()
        for limit in self._preparing:
            limit.reschedule(now)

    async def wait_idle(self) -> None:
        """Return as soon as no request is here."""
        while self.count:  # between its preparation and its answer a request counts as gone
            await self._idle.wait()
