"""What gateways see: `GET /fleet` of each, as far as scaling needs it.

One that does not answer is not heard; what it said last grows old.
"""

import asyncio
from collections.abc import Callable, Iterable

import aiohttp
import msgspec

from quire_operator.reconciling.scaling_reports import SCHEMA_VERSION, Report, SeenFleet

_TIMEOUT = aiohttp.ClientTimeout(total=4.0, connect=2.0)
_MOST_BYTES = 256 << 20
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, ValueError)


class Gateways:
    """The newest reports of all gateways."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.reports: dict[str, Report] = {}
        """By URL."""

    async def ask(self, urls: Iterable[str]) -> None:
        """Ask these; others are gone."""
        wanted = list(urls)
        for url in self.reports.keys() - set(wanted):
            del self.reports[url]
        await asyncio.gather(*map(self._ask, wanted))

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, url: str) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        try:
            async with self._session.get(f"{url}/fleet", allow_redirects=False) as answer:
                answer.raise_for_status()
                body = await answer.content.read(_MOST_BYTES)
                while more := await answer.content.read(_MOST_BYTES):
                    body += more
            fleet = msgspec.json.decode(body, type=SeenFleet)
        except _FAILURES:
            return
        if fleet.schema_version == SCHEMA_VERSION:
            self.reports[url] = Report(fleet=fleet, at=self._clock())
