"""`GET /state/stream`: the state as server-sent events, pushed when it changes.

event: state        on every change, at most 4 a second; the first at once
event: heartbeat    when nothing has changed for a second
"""

import asyncio

from starlette.types import Send

from quire_engine.protocol.state import EngineState, Heartbeat
from quire_engine.server.event_stream import EventStream
from quire_engine.server.service import Service

MIN_INTERVAL_SECONDS = 0.25
"""States follow each other no faster."""
HEARTBEAT_SECONDS = 1.0


class StateStream(EventStream):
    """Sends states until the reader leaves or the server ends."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._feed = service.feed

    async def send_events(self, send: Send) -> None:
        """Send a state at once and then whenever there is a newer one."""
        state = self._service.state()
        while not self._feed.is_closed:
            await self.send_event(send, "state", state)
            await asyncio.sleep(MIN_INTERVAL_SECONDS)
            await self._send_heartbeats(state, send)
            state = self._service.state(chunks_from=state.prefix_chunks.next_number)

    async def _send_heartbeats(self, state: EngineState, send: Send) -> None:
        """Return when there is a newer state; meanwhile say that there is none."""
        wait = HEARTBEAT_SECONDS - MIN_INTERVAL_SECONDS
        while not await self._feed.wait_beyond(state.sequence, wait):
            if self._service.is_ready != state.is_ready:
                return  # the core has gone silent: no news brought that
            wait = HEARTBEAT_SECONDS
            beat = Heartbeat(sequence=state.sequence, age_seconds=self._service.age_seconds)
            await self.send_event(send, "heartbeat", beat)
