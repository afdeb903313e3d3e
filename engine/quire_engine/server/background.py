"""Blocking work beside the event loop that must not hold up the end of the process."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread that a shutdown does not wait for.

    `asyncio.to_thread` would keep the process alive until the work is done: after Ctrl-C in a
    long download, that is minutes.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="background", daemon=True).start()
    return await done
