"""Comments on a stream that waits for its first engine, so that nobody between takes it for dead.

A stream begins with the first comment: from then on, what goes wrong is an event of it.
"""

import asyncio
from collections.abc import Callable

from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.headers import Headers

COMMENT_SECONDS = 5.0
"""Between comments, and before the first; half of the shortest time that proxies wait."""
_COMMENT = b": waiting for an engine to start\n\n"


class KeepAwake:
    """Sends comments while a request waits, and only where no engine is there.

    Parameters
    ----------
    is_cold
        Whether no engine is there: who waits for room may still be told to come again.
    """

    def __init__(
        self, client: ClientConnection, request_id: bytes, is_cold: Callable[[], bool]
    ) -> None:
        self._client = client
        self._request_id = request_id
        self._is_cold = is_cold
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(COMMENT_SECONDS, self._tick)

    def stop(self) -> None:
        """The wait is over."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(COMMENT_SECONDS, self._tick)
        if not self._is_cold():
            return
        if not self._client.has_started:
            headers: Headers = [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                (b"x-request-id", self._request_id),
            ]
            self._client.start(200, headers, None)
        if not self._client.is_paused:
            self._client.write(_COMMENT)
