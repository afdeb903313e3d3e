"""Server-sent events for as long as the reader stays and the server lives.

A reader that is slow gets fewer and newer events: nothing is queued for it, the next event is made
when the socket has taken the one before.
"""

import asyncio
from abc import abstractmethod
from contextlib import suppress

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire_engine.server.streaming import EVENT_STREAM_HEADERS, send_body

IS_HEAD = "quire.is_head"
"""In the scope of a request that wants the head of an answer alone."""
_encode = msgspec.json.Encoder().encode


class EventStream(Response):
    """A response that goes on until `send_events` returns or the reader leaves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; called once by the server."""
        if IS_HEAD in scope:
            await self._send_head(send)
            await send_body(send, b"", is_last=True)
            return
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    @abstractmethod
    async def send_events(self, send: Send) -> None:
        """Send all events with `send_event`."""

    async def send_event(self, send: Send, name: str, body: msgspec.Struct) -> None:
        """Send one event; returns when the socket can take more."""
        event = b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(body))
        await send_body(send, event, is_last=False)

    async def _send_head(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})

    async def _send_all(self, send: Send) -> None:
        await self._send_head(send)
        await self.send_events(send)
        await send_body(send, b"", is_last=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
