"""Wakes those who follow the engine's state."""

import asyncio


class StateFeed:
    """Numbers the states and says when there is a newer one; belongs to one event loop."""

    def __init__(self) -> None:
        self.sequence = 0
        """Of the newest state."""
        self.is_closed = False
        self._news = asyncio.Event()

    def bump(self) -> None:
        """The state has changed."""
        self.sequence += 1
        self._wake()

    def follow(self, sequence: int) -> None:
        """The state has changed, and another process has numbered it."""
        self.sequence = sequence
        self._wake()

    def close(self) -> None:
        """There will be no further state: the server ends."""
        self.is_closed = True
        self.bump()

    async def wait_beyond(self, sequence: int, timeout_seconds: float) -> bool:
        """Wait for a newer state than this; the answer is no when there was none in time."""
        if self.sequence > sequence:
            return True
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
