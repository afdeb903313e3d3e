"""`GET /state/live`: the state with every block and request, while somebody watches.

    event: live         on every change, at most 4 a second; the first at once
    event: heartbeat    when nothing has changed for a second

The core makes its views for all that watch, and stops when the last has left.
"""

import asyncio
from contextlib import ExitStack

from starlette.types import Send

from quire_engine.protocol.live_state import LiveState
from quire_engine.protocol.state import Heartbeat
from quire_engine.server.errors import ApiError
from quire_engine.server.event_stream import EventStream
from quire_engine.server.service import Service
from quire_engine.server.state_stream import HEARTBEAT_SECONDS, MIN_INTERVAL_SECONDS


class LiveStream(EventStream):
    """Sends live states until the reader leaves or the server ends."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._is_watching = False

    async def send_events(self, send: Send) -> None:
        """Look four times a second whether anything is new."""
        sent: LiveState | None = None
        num_quiet_looks = 0
        with ExitStack() as watching:
            while not self._service.feed.is_closed:
                self._watch_core(watching)
                live = self._service.live_state()
                if sent is None or _differ(live, sent):
                    await self.send_event(send, "live", live)
                    sent, num_quiet_looks = live, 0
                elif num_quiet_looks * MIN_INTERVAL_SECONDS >= HEARTBEAT_SECONDS:
                    await self.send_event(send, "heartbeat", _beat(live))
                    num_quiet_looks = 0
                num_quiet_looks += 1
                await asyncio.sleep(MIN_INTERVAL_SECONDS)

    def _watch_core(self, watching: ExitStack) -> None:
        """Begin to watch as soon as there is a core: the page may come while the model loads."""
        if self._is_watching:
            return
        try:
            watching.enter_context(self._service.watch_core())
        except ApiError:
            return
        self._is_watching = True


def _differ(newer: LiveState, older: LiveState) -> bool:
    is_same_view = newer.view is older.view
    is_same_state = newer.state.sequence == older.state.sequence
    return not (is_same_view and is_same_state and newer.status == older.status)


def _beat(live: LiveState) -> Heartbeat:
    return Heartbeat(sequence=live.state.sequence, age_seconds=live.state.age_seconds)
