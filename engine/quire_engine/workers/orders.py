"""Orders of operators that reach a worker and are carried out for all: see `Steering`."""

import asyncio
from collections.abc import Callable

from quire_engine.protocol.messages import Thresholds
from quire_engine.server.steering import CONFIRM_SECONDS, Steering, not_confirmed
from quire_engine.workers.messages import BeginDrain, ChangeThresholds, Order, UndoDrain

_ANSWER_SECONDS = CONFIRM_SECONDS + 5.0
"""The server's process gives up first."""


class RemoteSteering(Steering):
    """Passes orders on to the server's process; belongs to one event loop."""

    def __init__(self, send: Callable[[Order], None]) -> None:
        self._send = send
        self._num_orders = 0
        self._open: dict[int, asyncio.Future[bool]] = {}

    async def begin_drain(self, seconds: float | None) -> None:
        """See `Steering`."""
        await self._order(BeginDrain(seconds=seconds))

    async def undo_drain(self) -> None:
        """See `Steering`."""
        await self._order(UndoDrain())

    async def set_thresholds(self, thresholds: Thresholds) -> None:
        """See `Steering`."""
        await self._order(ChangeThresholds(thresholds=thresholds))

    def settle(self, number: int, *, is_in_force: bool) -> None:
        """Take the answer to an order."""
        answer = self._open.get(number)
        if answer is not None and not answer.done():
            answer.set_result(is_in_force)

    async def _order(self, what: BeginDrain | UndoDrain | ChangeThresholds) -> None:
        self._num_orders += 1
        number = self._num_orders
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(Order(number=number, what=what))
            is_in_force = await asyncio.wait_for(answer, _ANSWER_SECONDS)
        except TimeoutError:
            is_in_force = False
        finally:
            del self._open[number]
        if not is_in_force:
            raise not_confirmed()
