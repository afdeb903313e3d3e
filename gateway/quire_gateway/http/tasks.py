"""Applications that are coroutines: for ports where a task for each request costs nothing."""

import asyncio
from collections.abc import Callable, Coroutine

from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.request import Answering, Application, Request

CoroutineApplication = Callable[[ClientConnection, Request], Coroutine[None, None, None]]


def in_tasks(application: CoroutineApplication) -> Application:
    """Make an application of a coroutine function, which is cancelled when the client leaves."""

    def answer(client: ClientConnection, request: Request) -> Answering:
        return _Task(client, application(client, request))

    return answer


class _Task:
    def __init__(self, client: ClientConnection, answer: Coroutine[None, None, None]) -> None:
        self._client = client
        self._task = asyncio.get_running_loop().create_task(answer)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """See `Answering`."""
        self._task.cancel()

    def on_due(self) -> None:
        """See `Answering`."""

    def _end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._client.fail(error)
        else:
            self._client.end()
