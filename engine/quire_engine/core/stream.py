"""The deltas of one request on their way from the core to whoever writes the answer."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from quire_engine.core.outputs import merge_delta
from quire_engine.errors import QuireError
from quire_engine.protocol.messages import TokenDelta


class DeltaStream:
    """An asynchronous iterator over one request's deltas; the last has a finish reason.

    Deltas that come while the reader is busy are merged into one, so that a slow reader holds no
    more than its own request's tokens, and catches up in one turn. Leaving the `with` block
    before the end aborts the request.
    """

    __slots__ = ("_error", "_has_ended", "_on_close", "_pending", "_waiter", "request_id")

    def __init__(self, request_id: str, on_close: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._on_close = on_close
        self._pending: TokenDelta | None = None
        self._error: QuireError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._has_ended = False

    def put(self, delta: TokenDelta) -> None:
        """Add what a step brought; called on the event loop's thread."""
        if self._pending is None:
            self._pending = delta
        else:
            merge_delta(self._pending, delta)
        self._wake()

    def fail(self, error: QuireError) -> None:
        """End with an exception, which the reader gets after the deltas that came before it."""
        self._error = error
        self._wake()

    def close(self) -> None:
        """Stop: the reader's loop ends, and a request that has not ended is aborted.

        Safe to call twice, and while a reader waits.
        """
        self._has_ended = True
        self._wake()
        self._on_close(self.request_id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TokenDelta:
        while not self._has_ended:
            if self._pending is not None:
                delta, self._pending = self._pending, None
                self._has_ended = delta.finish_reason is not None
                return delta
            if self._error is not None:
                self._has_ended = True
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        raise StopAsyncIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
