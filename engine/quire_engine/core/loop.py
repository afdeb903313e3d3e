"""The step loop: take inputs, step, send outputs; asleep when there is nothing to do."""

import time
from collections.abc import Callable
from typing import Protocol

from quire_engine.core.engine import EngineCore
from quire_engine.core.front_desk import FrontDesk, add_request
from quire_engine.core.outputs import OutputSockets
from quire_engine.core.view_feed import ViewFeed
from quire_engine.protocol.messages import (
    AbortRequests,
    AddRequest,
    CoreReady,
    Goodbye,
    Hello,
    ModelFacts,
    SetThresholds,
    Shutdown,
    ToCore,
    UseVocabulary,
    WatchCore,
)

STATS_INTERVAL_SECONDS = 0.1
"""Statistics are sent at most this often while something changes."""
HEARTBEAT_SECONDS = 1.0
"""And this often while nothing does."""
PROFILE_INTERVAL_SECONDS = 1.0
"""What the core has learnt is sent this often."""
AUDIT_INTERVAL_SECONDS = 60.0
"""An engine that has been idle for a heartbeat checks its accounts, at most this often."""
_RETRY_SECONDS = 0.002
"""How soon held outputs are tried again when there is no step to make."""


class Inputs(Protocol):
    """Where the loop's messages come from."""

    def take(self, wait_seconds: float) -> list[ToCore]:
        """All messages that have come; when there is none, wait so long for one."""


class StatsTimer:
    """When the core's statistics are due: soon after a change, else as a heartbeat."""

    def __init__(self) -> None:
        self._sent_at = float("-inf")
        self._changed = True

    @property
    def is_quiet(self) -> bool:
        """Whether nothing changed since statistics were sent."""
        return not self._changed

    def mark_changed(self) -> None:
        """Note that the statistics are no longer those that were sent."""
        self._changed = True

    def mark_sent(self, now: float) -> None:
        """Note that the statistics as of `now` were sent."""
        self._sent_at = now
        self._changed = False

    def seconds_left(self, now: float) -> float:
        """How long until statistics are due, 0 when they are."""
        interval = STATS_INTERVAL_SECONDS if self._changed else HEARTBEAT_SECONDS
        return max(0.0, self._sent_at + interval - now)


class StepLoop:
    """Drives one `EngineCore` until it is told to shut down; one thread calls it."""

    def __init__(
        self,
        core: EngineCore,
        facts: ModelFacts,
        inputs: Inputs,
        outputs: OutputSockets,
        clock: Callable[[], float] = time.monotonic,
        front_desk: FrontDesk | None = None,
    ) -> None:
        self._core = core
        self._facts = facts
        self._inputs = inputs
        self._outputs = outputs
        self._clock = clock
        self._front_desk = front_desk
        self._timer = StatsTimer()
        self._views = ViewFeed(core.view, outputs.send_to, clock)
        self._gone: set[str] = set()
        """API servers that died: what they had sent may come later than the news of it."""
        self._is_running = True
        self._profile_at = 0.0
        self._audit_at = 0.0
        self._is_audited = True

    def run(self) -> None:
        """Loop until `Shutdown` arrives."""
        while self._is_running:
            for message in self._inputs.take(self._wait_seconds()):
                self.handle(message)
            if self._core.has_work():
                started_at = self._clock()
                self._outputs.send_deltas(self._core.step(started_at))
                self._views.count_step(started_at)
                self._timer.mark_changed()
                self._is_audited = False
            else:
                self._outputs.flush()
            self._views.send_if_due()
            self._send_stats_if_due()

    def handle(self, message: ToCore) -> None:
        """Apply one message from an API server."""
        self._timer.mark_changed()
        self._views.mark_changed()
        match message:
            case AddRequest():
                self._add(message)
            case AbortRequests(request_ids=request_ids):
                self._core.abort(request_ids)
            case Hello():
                self._welcome(message)
            case Goodbye(client_id=client_id):
                self._part_with(client_id)
            case SetThresholds(thresholds=thresholds):
                self._core.set_thresholds(thresholds)
                self._profile_at = 0.0
            case WatchCore(client_id=client_id, is_on=is_on):
                if self._outputs.knows(client_id):
                    self._views.watch(client_id, is_on=is_on)
            case UseVocabulary(vocabulary=vocabulary):  # it came before the inputs were attached
                self._core.grammars.use(vocabulary)
            case Shutdown():
                self._is_running = False

    def _welcome(self, hello: Hello) -> None:
        client_id, address = hello.client_id, hello.output_address
        if client_id in self._gone:
            return
        self._views.watch(client_id, is_on=False)
        self._core.abort_client(client_id)
        self._outputs.connect(client_id, address, hears_news=hello.hears_news)
        if hello.hears_news:
            # before it is ready, so that no state of a ready engine says that it has no blocks
            self._outputs.send_to(client_id, self._core.stats())
            self._outputs.send_to(client_id, self._core.profile())
            self._outputs.send_to(client_id, CoreReady(facts=self._facts))
        if self._front_desk is not None:
            self._front_desk.register(client_id, address)

    def _part_with(self, client_id: str) -> None:
        """End what an API server that is gone had asked for."""
        self._gone.add(client_id)
        if self._front_desk is not None:
            self._front_desk.forget(client_id)
        self._views.watch(client_id, is_on=False)
        self._core.abort_client(client_id)
        self._outputs.disconnect(client_id)

    def _add(self, request: AddRequest) -> None:
        if request.client_id in self._gone:
            return
        refusal = add_request(self._core, request, self._clock())
        if refusal is not None:
            self._outputs.send_deltas([(request.client_id, refusal)])

    def _wait_seconds(self) -> float:
        if self._core.has_work():
            return 0.0
        if self._outputs.is_holding:
            return _RETRY_SECONDS
        now = self._clock()
        return min(self._timer.seconds_left(now), self._views.seconds_left(now))

    def _send_stats_if_due(self) -> None:
        now = self._clock()
        if self._timer.seconds_left(now) == 0.0:
            self._audit_if_idle(now)
            news = self._core.prefix_news()
            if news is not None:
                self._outputs.send_to_all(news)
            self._outputs.send_to_all(self._core.stats())
            self._timer.mark_sent(now)
        if now >= self._profile_at:
            self._outputs.send_to_all(self._core.profile())
            self._profile_at = now + PROFILE_INTERVAL_SECONDS

    def _audit_if_idle(self, now: float) -> None:
        """Check all accounts after a second without work; a wrong one ends the process.

        It takes time in proportion to the blocks, so it is left out while there is work, and
        when the last check is not long ago.
        """
        is_idle = self._timer.is_quiet and not self._core.has_work()
        if is_idle and not self._is_audited and now >= self._audit_at:
            self._core.check_invariants()
            self._is_audited = True
            self._audit_at = now + AUDIT_INTERVAL_SECONDS
