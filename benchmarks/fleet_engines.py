"""Engines in virtual time: a real core behind the messages that a gateway would see of it.

Left out are HTTP and tokenizing; a hop takes a millisecond. States come as often as engines push
them, and with what a core has told its server by then.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quire_engine.config import EngineConfig
from quire_engine.core.engine import EngineCore
from quire_engine.core.prefix_ring import PrefixRing
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.scripted import ScriptedExecutor
from quire_engine.protocol.messages import AddRequest, CoreStats, FinishReason, TokenDelta
from quire_engine.protocol.state import EngineState, PrefixChunkLog
from quire_engine.server.state_stream import HEARTBEAT_SECONDS, MIN_INTERVAL_SECONDS
from quire_local.simulate.telling import describe_core

HOP_SECONDS = 0.001

Hear = Callable[[EngineState], None]


@dataclass(slots=True, eq=False)
class Answer:
    """What has come of one attempt."""

    ended: asyncio.Future[bool]
    """Whether it was answered; if not, it was refused."""
    first_token_at: float | None = None
    num_tokens: int = 0
    num_cached_tokens: int = 0


@dataclass(slots=True, eq=False)
class Listener:
    """One gateway that follows an engine."""

    hear: Hear
    beat: Callable[[], None]
    next_event: int = 0
    is_new: bool = field(default=True)


class VirtualEngine:
    """One engine.

    Parameters
    ----------
    output_lengths
        True lengths of outputs by the requests' numbers, which are their seeds.
    """

    def __init__(
        self, name: str, config: EngineConfig, output_lengths: Mapping[int, int], seed: int
    ) -> None:
        self.name = name
        self.config = config
        self.num_accepted = 0
        self._seed = seed
        self._lengths = output_lengths
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []
        self._answers: dict[str, Answer] = {}
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._ring = PrefixRing()
        self._sequence = 0
        self._boot()

    def _boot(self) -> None:
        self._clock = VirtualClock(self._loop.time())
        executor = ScriptedExecutor(self.config, clock=self._clock, output_lengths=self._lengths)
        self.core = EngineCore(
            self.config,
            executor,
            executor.allocate_cache(),
            random_source=random.Random(self._seed),
        )

    def restart(self) -> None:
        """Begin anew, with an empty cache; it must be idle."""
        self._boot()
        self._ring.clear()
        self._mark_changed()

    def follow(self, listener: Listener) -> None:
        """Tell a gateway all states from now on; the first has what is known of prefixes."""
        self._listeners.append(listener)
        self._mark_changed()

    def leave(self, listener: Listener) -> None:
        """Tell it nothing more."""
        self._listeners.remove(listener)

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Step and tell states until the tasks are cancelled."""
        return [group.create_task(self._step_on()), group.create_task(self._tell_on())]

    @property
    def stats(self) -> CoreStats:
        """The core's counts now."""
        return self.core.stats()

    def add(self, request: AddRequest) -> Answer | None:
        """Let a request in; None if it is refused at once."""
        self._mark_changed()
        if self.core.add(request, self._loop.time()) is not None:
            return None
        self.num_accepted += 1
        answer = Answer(self._loop.create_future())
        self._answers[request.request_id] = answer
        self._wake.set()
        return answer

    async def _step_on(self) -> None:
        while True:
            if not self.core.has_work():
                self._wake.clear()
                await self._wake.wait()
            self._clock.sleep_until(self._loop.time())
            deltas = self.core.step(self._loop.time())
            await asyncio.sleep(max(self._clock.now() - self._loop.time(), 0.0))
            for _, delta in deltas:
                self._take(delta)
            self._mark_changed()

    def _take(self, delta: TokenDelta) -> None:
        answer = self._answers[delta.request_id]
        if delta.token_ids and answer.first_token_at is None:
            answer.first_token_at = self._loop.time()
            answer.num_cached_tokens = delta.num_cached_tokens
        answer.num_tokens += len(delta.token_ids)
        if delta.finish_reason is not None:
            del self._answers[delta.request_id]
            answer.ended.set_result(delta.finish_reason is not FinishReason.REFUSED)

    def _mark_changed(self) -> None:
        self._sequence += 1
        self._changed.set()

    async def _tell_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                for listener in self._listeners:
                    listener.beat()
                continue
            self._changed.clear()
            news = self.core.prefix_news()
            if news is not None:
                self._ring.take(news)
            for listener in self._listeners:
                listener.hear(self._describe(listener))
            await asyncio.sleep(MIN_INTERVAL_SECONDS)

    def _describe(self, listener: Listener) -> EngineState:
        first, events = self._ring.since(listener.next_event)
        listener.next_event = self._ring.next_number
        chunks = PrefixChunkLog(
            first_number=first, next_number=self._ring.next_number, events=events
        )
        profile = self.core.profile()
        return describe_core(self.core, self.config, profile, self._sequence, chunks)
