"""What operators tell a running engine to do: where the orders go, and when they are in force."""

import asyncio
from abc import ABC, abstractmethod

from quire_engine.core.client import CoreClient
from quire_engine.protocol.messages import Thresholds
from quire_engine.server.drain import Drain
from quire_engine.server.errors import ApiError
from quire_engine.server.state_feed import StateFeed

CONFIRM_SECONDS = 10.0
"""The core takes new limits between two steps; none lasts that long."""


class Steering(ABC):
    """Each order returns when it is in force.

    Raises
    ------
    ApiError
        503: it could not be confirmed in time.
    """

    @abstractmethod
    async def begin_drain(self, seconds: float | None) -> None:
        """Take no more requests; after so long, what still runs ends with an error."""

    @abstractmethod
    async def undo_drain(self) -> None:
        """Take requests again."""

    @abstractmethod
    async def set_thresholds(self, thresholds: Thresholds) -> None:
        """Put other limits of admission in force."""


class OwnSteering(Steering):
    """For the process that watches over the core."""

    def __init__(self, drain: Drain, feed: StateFeed) -> None:
        self._drain = drain
        self._feed = feed
        self.client: CoreClient | None = None

    async def begin_drain(self, seconds: float | None) -> None:
        """See `Steering`."""
        self._drain.begin(seconds)
        self._feed.bump()

    async def undo_drain(self) -> None:
        """See `Steering`."""
        self._drain.undo()
        self._feed.bump()

    async def set_thresholds(self, thresholds: Thresholds) -> None:
        """See `Steering`."""
        if self.client is None:
            raise not_confirmed()
        self.client.set_thresholds(thresholds)
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                while not self._is_in_force(thresholds):
                    await self._feed.wait_beyond(self._feed.sequence, CONFIRM_SECONDS)
        except TimeoutError:
            raise not_confirmed() from None

    def _is_in_force(self, thresholds: Thresholds) -> bool:
        profile = self.client.latest_profile if self.client else None
        return profile is not None and profile.thresholds == thresholds


def not_confirmed() -> ApiError:
    """What is answered when an order is not in force in time."""
    return ApiError(
        503,
        "This is not in force everywhere yet; ask GET /state or GET /thresholds in a moment.",
        code="not_confirmed",
        retry_after_seconds=1.0,
    )
