"""The state of one engine, as it pushes it: `GET /state/stream`, opened again whenever it ends.

This is the active check of an engine's health, too: it beats every second.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress

import msgspec

from quire_engine.protocol.state import SCHEMA_VERSION, EngineState
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.plausible import check_state
from quire_gateway.http.headers import Headers, write_head
from quire_gateway.http.pool import ConnectionPool

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_MAX_EVENT_BYTES = 4 << 20
_CHECKS = 5
"""How often it is looked whether an engine is silent, in the time that it may be."""

_FIGURE = re.compile(r"-?[0-9][-+.0-9e]*")

_log = logging.getLogger(__name__)


class EngineWatch:
    """Follows one engine until it is cancelled.

    Parameters
    ----------
    on_state
        Called with each state.
    on_bad
        Called with what became of a state that cannot be so: "refused" or "corrected".
    on_lost
        Called when the stream has ended, with whether the engine fell silent:
        then what it was asked for will not be answered either.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        pool: ConnectionPool,
        headers: Headers,
        *,
        silence_seconds: float,
        on_state: Callable[[Endpoint, EngineState], None],
        on_bad: Callable[[str], None],
        on_lost: Callable[[bool], None],
    ) -> None:
        self._endpoint = endpoint
        self._pool = pool
        self._headers = headers
        self._silence_seconds = silence_seconds
        self._on_state = on_state
        self._on_bad = on_bad
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._problem = ""
        self._was_corrected = False

    async def run(self) -> None:
        """Follow it."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            stream = _Stream(self._take, self._on_bad)
            try:
                connection = await self._pool.connect()
                try:
                    line = b"GET /state/stream HTTP/1.1"
                    connection.send(write_head(line, self._headers), b"", stream)
                    await self._until_silent(stream)
                finally:
                    connection.abort()
            except (OSError, TimeoutError) as error:
                stream.problem = f"cannot be reached: {str(error) or 'too slow'}"
            if stream.num_events:
                pause = _FIRST_PAUSE_SECONDS
            self._tell(stream.problem)
            self._on_lost(stream.is_silent)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _until_silent(self, stream: "_Stream") -> None:
        """Return when the stream has ended, or nothing came for too long."""
        num_events, num_empty = 0, 0
        while not stream.ended.is_set():
            num_empty = 0 if stream.num_events > num_events else num_empty + 1
            if num_empty > _CHECKS:
                stream.is_silent = True
                stream.problem = f"said nothing for {self._silence_seconds:g} seconds"
                return
            num_events = stream.num_events
            with suppress(TimeoutError):
                async with asyncio.timeout(self._silence_seconds / _CHECKS):
                    await stream.ended.wait()

    def _take(self, name: bytes, data: bytes) -> None:
        now = self._loop.time()
        if name == b"heartbeat":
            self._endpoint.beat(now)
            return
        if name != b"state":
            return
        state = msgspec.json.decode(data, type=EngineState)
        if state.schema_version != SCHEMA_VERSION:
            message = f"state has schema_version {state.schema_version}, not {SCHEMA_VERSION}"
            raise msgspec.ValidationError(message)
        told, state = state, check_state(state)
        if state is not told:
            self._on_bad("corrected")
            self._tell_corrected(told, state)
        self._endpoint.hear(state, now)
        self._on_state(self._endpoint, state)

    def _tell_corrected(self, told: EngineState, taken: EngineState) -> None:
        """Say what was not believed, once."""
        if not self._was_corrected:
            _log.warning(
                "engine %s says impossible counts: %s is taken for %s",
                self._endpoint.address,
                told.blocks,
                taken.blocks,
            )
        self._was_corrected = True

    def _tell(self, problem: str) -> None:
        """Say what is wrong, once; other figures are no other problem."""
        kind = _FIGURE.sub("", problem)
        if kind != self._problem:
            _log.warning("engine %s %s", self._endpoint.address, problem)
        self._problem = kind


class _Stream:
    """The events of one stream."""

    def __init__(self, take: Callable[[bytes, bytes], None], on_bad: Callable[[str], None]) -> None:
        self.ended = asyncio.Event()
        self.num_events = 0
        self.problem = "ended its stream of states"
        self.is_silent = False
        self._take = take
        self._on_bad = on_bad
        self._text = b""

    def on_head(self, status: int, headers: Headers) -> None:  # noqa: ARG002
        """See `AnswerReceiver`."""
        if status != 200:
            self._end(f"answers {status} for its state")

    def on_body(self, data: bytes) -> None:
        """See `AnswerReceiver`."""
        if self.ended.is_set():
            return
        *events, self._text = (self._text + data).split(b"\n\n")
        if len(self._text) > _MAX_EVENT_BYTES:
            self._end("sends states without an end")
            return
        for event in events:
            lines = [line.partition(b": ") for line in event.split(b"\n")]
            fields = {name: value for name, _, value in lines}
            try:
                self._take(fields.get(b"event", b""), fields.get(b"data", b""))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                self._on_bad("refused")
                self._end(f"sends states that cannot be used: {error}")
                return
            self.num_events += 1

    def on_end(self) -> None:
        """See `AnswerReceiver`."""
        self.ended.set()

    def on_failure(self, reason: str, *, was_reused: bool) -> None:  # noqa: ARG002
        """See `AnswerReceiver`."""
        if not self.ended.is_set() and reason == "garbage":
            self.problem = "sends states that are no HTTP"
        self.ended.set()

    def _end(self, problem: str) -> None:
        self.problem = problem
        self.ended.set()
