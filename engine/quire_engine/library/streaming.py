"""Asynchronous streams over one engine: a task steps it while there is a stream to feed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from quire_engine.errors import EngineDeadError, RequestError
from quire_engine.library.params import GenerationParams
from quire_engine.library.results import Result

if TYPE_CHECKING:
    from quire_engine.library.engine import Engine

_Event = tuple[str, Result | None]


class Pump:
    """Steps the engine in a thread while requests are there, and hands over what steps bring."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._task: asyncio.Task[None] | None = None

    async def read(
        self, prompt: str | Sequence[int], params: GenerationParams
    ) -> AsyncGenerator[str, None]:
        """Submit a prompt and yield its text as it grows; see `Engine.stream`."""
        events: asyncio.Queue[_Event] = asyncio.Queue()
        request_id = self._engine.submit(
            prompt, params, lambda text, result: events.put_nowait((text, result))
        )
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="engine-steps")
        task = self._task
        try:
            result = None
            while result is None:
                text, result = await self._next(events, task)
                if text:
                    yield text
            if not result.is_success:
                raise RequestError(result.error or f"the request ended by {result.finish_reason}")
        finally:
            self._engine.abort(request_id)

    async def _next(self, events: "asyncio.Queue[_Event]", task: "asyncio.Task[None]") -> _Event:
        """The next event; an engine that broke down has none any more."""
        getting = asyncio.ensure_future(events.get())
        try:
            await asyncio.wait((getting, task), return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
        finally:
            getting.cancel()
        if not events.empty():
            return events.get_nowait()
        error = task.exception()
        raise EngineDeadError("the engine stopped stepping; make a new one") from error

    async def _run(self) -> None:
        while self._engine.has_work:
            deltas = await asyncio.to_thread(self._engine.compute)
            self._engine.deliver(deltas)
