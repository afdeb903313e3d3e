"""Clients of gateways that go on asking while something breaks, and count what they get."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.api.events import check_ends_once, parse_events
from tests.api.servers import MODEL, wait_until_async

NUM_CLIENTS = 12


class GatewayLoad:
    """Clients that ask one thing after the other, streamed and whole.

    Parameters
    ----------
    urls
        Of gateways, in turn; a client goes to another one only where its connection is refused.
    """

    def __init__(self, urls: list[str], http: httpx.AsyncClient) -> None:
        self.urls = urls
        self._http = http
        self._turns = itertools.count()
        self._is_over = False
        self.counts: Counter[str] = Counter()
        """finished, lost (a stream that had begun ended with an error event), failed."""
        self.failures: list[str] = []
        """What clients got where nothing had gone out."""

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Ask while the block runs; every request is answered in the end."""
        async with asyncio.TaskGroup() as group:
            for number in range(NUM_CLIENTS):
                group.create_task(self._ask_on(number))
            try:
                await self.until_more()
                yield
            finally:
                self._is_over = True

    async def until_more(self, count: int = 2 * NUM_CLIENTS) -> None:
        """Wait until so many more answers have come."""
        before = self.counts.total()
        await wait_until_async(lambda: self.counts.total() >= before + count)

    async def _ask_on(self, number: int) -> None:
        while not self._is_over:
            # from a moment to seconds, so that some are running whenever something breaks
            body = {"model": MODEL, "prompt": "Once", "max_tokens": 1 + 7 * number}
            try:
                outcome = await self._ask(body | {"stream": number % 2 == 0})
            except (httpx.HTTPError, AssertionError) as error:
                outcome = "failed"
                self.failures.append(repr(error))
            self.counts[outcome] += 1

    async def _ask(self, body: dict[str, Any]) -> str:
        answer = await self._post(body)
        assert answer.status_code == 200, answer.text
        if body["stream"]:
            return "finished" if check_ends_once(parse_events(answer.text)) == "finish" else "lost"
        assert answer.json()["usage"]["completion_tokens"] == body["max_tokens"]
        return "finished"

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        while True:
            url = self.urls[next(self._turns) % len(self.urls)]
            try:
                return await self._http.post(url + "/v1/completions", json=body)
            except httpx.ConnectError:
                if len(self.urls) == 1:
                    raise
                await asyncio.sleep(0.01)
