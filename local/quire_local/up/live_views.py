"""Engines' block maps, followed for as long as somebody looks at the page."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx

from quire_local.up.engine import Engine

_SILENCE_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
_DATA = "data: "


class LiveViews:
    """The newest view of each engine, as JSON that the engine made.

    Parameters
    ----------
    token_of
        What an engine knows us by.
    """

    def __init__(self, http: httpx.AsyncClient, token_of: Callable[[Engine], str]) -> None:
        self._http = http
        self._token_of = token_of
        self._num_watchers = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.newest: dict[str, str] = {}
        """By engine."""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Somebody looks: engines make views for as long as the block lasts."""
        self._num_watchers += 1
        try:
            yield
        finally:
            self._num_watchers -= 1
            if not self._num_watchers:
                self.follow([])

    def follow(self, engines: list[Engine]) -> None:
        """Follow these, and no others."""
        wanted = {one.name: one for one in engines}
        for name in self._tasks.keys() - wanted.keys():
            self._tasks.pop(name).cancel()
            self.newest.pop(name, None)
        for name in wanted.keys() - self._tasks.keys():
            self._tasks[name] = asyncio.create_task(self._read_always(wanted[name]))

    async def _read_always(self, engine: Engine) -> None:
        while True:
            with suppress(httpx.HTTPError):
                await self._read(engine)
            self.newest.pop(engine.name, None)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self, engine: Engine) -> None:
        headers = {"authorization": f"Bearer {self._token_of(engine)}"}
        url = f"http://{engine.address}/state/live"
        timeout = httpx.Timeout(_SILENCE_SECONDS)
        async with self._http.stream("GET", url, headers=headers, timeout=timeout) as answer:
            answer.raise_for_status()
            is_view = False
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    is_view = line == "event: live"
                elif is_view and line.startswith(_DATA):
                    self.newest[engine.name] = line.removeprefix(_DATA)
