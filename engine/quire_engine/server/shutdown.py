"""Ending on a signal without dropping what runs.

    signal ── grace ──────── refuse new ────── running requests end ── deadline ── exit 0
    /readyz is 503           503               finish                  error event

The grace lets load balancers notice; after Ctrl-C, or before the model was loaded, there is none.
A second signal goes to the deadline at once.
"""

import asyncio
import signal
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from quire_engine.config import ServerConfig

_ERROR_EVENT_SECONDS = 2.0
"""Requests that were ended with an error may take this long to say so."""


class StopSignals:
    """SIGTERM and SIGINT as events; belongs to one event loop."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.was_interrupt = False
        """Whether the first was Ctrl-C."""

    def install(self) -> None:
        """Take over both signals from whoever had them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note, number)

    def remove(self) -> None:
        """Give both signals back."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def _note(self, number: signal.Signals) -> None:
        if self.first.is_set():
            self.second.set()
            return
        self.was_interrupt = number is signal.SIGINT
        self.first.set()


class Stoppable(Protocol):
    """What can be stopped: a service, or all workers together."""

    was_ready: bool
    """Whether the model has been loaded once."""

    def stop_soon(self) -> None:
        """Be not ready any more, though requests are still taken."""

    def refuse_all(self) -> None:
        """Take no request any more."""

    async def wait_idle(self) -> None:
        """Return as soon as no request is being answered."""

    def fail_running(self) -> None:
        """End all requests with an error."""


async def drain(service: Stoppable, config: ServerConfig, signals: StopSignals) -> None:
    """Let running requests finish within the configured time, refusing new ones."""
    deadline = time.monotonic() + config.drain_seconds
    service.stop_soon()
    if service.was_ready and not signals.was_interrupt:
        await _first_of(signals.second.wait(), timeout_seconds=config.drain_grace_seconds)
    service.refuse_all()
    await _first_of(
        service.wait_idle(),
        signals.second.wait(),
        timeout_seconds=max(0.0, deadline - time.monotonic()),
    )
    service.fail_running()
    await _first_of(service.wait_idle(), timeout_seconds=_ERROR_EVENT_SECONDS)


async def _first_of(*waits: Coroutine[Any, Any, object], timeout_seconds: float) -> None:
    """Return when one of these is done or the time is over; none of them goes on."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
