"""The API server's view of the core: requests in, streams of deltas out, readiness, restarts."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quire_engine.config import EngineConfig
from quire_engine.core.prefix_ring import PrefixRing
from quire_engine.core.shared_core import CoreHistory, CoreNews, CoreObserver, SharedCore
from quire_engine.core.stream import DeltaStream
from quire_engine.core.supervisor import Supervisor
from quire_engine.core.totals import CoreTotals
from quire_engine.errors import EngineDeadError, QuireError
from quire_engine.execution.base import Progress
from quire_engine.execution.command_bridge import CommandBridge
from quire_engine.protocol.messages import (
    AbortRequests,
    AddRequest,
    CoreFailed,
    CoreProfile,
    CoreReady,
    CoreStats,
    CoreView,
    FromCore,
    Goodbye,
    LoadProgress,
    ModelFacts,
    PrefixChunks,
    SetThresholds,
    StepOutputs,
    Thresholds,
    ToCore,
    TokenDelta,
    UseVocabulary,
    WatchCore,
    sequence_id,
)

_log = logging.getLogger(__name__)

_CORE_DIED = (
    "The engine stopped before this request was finished and is starting again."
    " Send the request again."
)


class CoreClient:
    """Talks to one supervised core process; belongs to one event loop.

    Parameters
    ----------
    on_news
        Called when what it knows of the core has changed.
    observer
        Told what happens to the core, for others that use it.
    shared
        The core, where another process watches over it; then none is started here.
    """

    def __init__(
        self,
        config: EngineConfig,
        model_path: Path | None,
        *,
        on_progress: Progress,
        on_news: Callable[[], None] = lambda: None,
        observer: CoreObserver | None = None,
        shared: SharedCore | None = None,
    ) -> None:
        self.client_id = shared.client_id if shared else make_client_id()
        self.facts: ModelFacts | None = None
        self.latest_stats: CoreStats | None = None
        self.latest_profile: CoreProfile | None = None
        self.latest_view: CoreView | None = None
        """Who holds which block; None while nobody watches."""
        self._num_watchers = 0
        self.num_core_deaths = 0
        """Core processes that ended without being asked to."""
        self.prefix_ring = PrefixRing()
        self._on_news = on_news
        self._observer = observer or CoreObserver()
        self._heard_at = 0.0
        self._silence_seconds = config.server.core_silence_seconds
        self._stuck_seconds = max(2 * self._silence_seconds, config.server.request_timeout_seconds)
        """No request outlives this, so that a step which takes longer is worth nothing."""
        self._silence_watch: asyncio.Task[None] | None = None
        self._vocabulary: bytes | None = None
        """What tokens stand for, once a grammar was wanted: another core is told, too."""
        self._wanted_thresholds: Thresholds | None = None
        """Limits that were changed while running: a core that is started again gets them too."""
        self._failure: str | None = None
        self._past = CoreTotals()
        self._streams: dict[str, DeltaStream] = {}
        self._on_progress = on_progress
        self._first_ready: asyncio.Future[ModelFacts] = asyncio.get_running_loop().create_future()
        self._is_shared = shared is not None
        self._supervisor = shared or self._make_supervisor(config, model_path)
        if shared is not None:
            shared.attach(self._on_message, self._on_exit)

    def _make_supervisor(
        self, config: EngineConfig, model_path: Path | None
    ) -> "Supervisor | CommandBridge | SharedCore":
        if config.executor.command is not None:
            return CommandBridge(config, on_message=self._on_message)
        return Supervisor(
            config,
            model_path,
            self.client_id,
            on_message=self._on_message,
            on_exit=self._on_exit,
            on_start=lambda: self._observer.core_began(self.address or ""),
        )

    async def start(self) -> None:
        """Start the core process; see `wait_ready`."""
        await self._supervisor.start()
        if not self._is_shared:
            self._silence_watch = asyncio.create_task(self._watch_silence(), name="core-silence")

    async def wait_ready(self) -> ModelFacts:
        """Wait until the first core has loaded the model.

        Raises
        ------
        QuireError
            The core could not start; the message says why.
        """
        return await asyncio.shield(self._first_ready)

    @property
    def is_ready(self) -> bool:
        """Whether requests can be sent: the model is loaded and the step loop alive."""
        return self.facts is not None and self.age_seconds < self._silence_seconds

    @property
    def age_seconds(self) -> float:
        """How long ago the core's step loop was last heard."""
        return time.monotonic() - self._heard_at

    @property
    def num_in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return len(self._streams)

    def totals(self) -> CoreTotals:
        """What all core processes counted so far."""
        return self._past.plus(self.latest_stats)

    @property
    def address(self) -> str | None:
        """What the names of the core's sockets begin with; None while there is no core."""
        supervisor = self._supervisor
        if isinstance(supervisor, Supervisor) and supervisor.channel is not None:
            return supervisor.address
        return None

    def history(self) -> CoreHistory:
        """What a process must be told that uses the core from now on."""
        newest = (
            self.latest_stats,
            self.latest_profile,
            CoreReady(facts=self.facts) if self.facts else None,
        )
        return CoreHistory(
            address=self.address,
            num_deaths=self.num_core_deaths,
            past=self._past,
            prefixes=self.prefix_ring.content(),
            news=[news for news in newest if news is not None],
            age_seconds=self.age_seconds,
        )

    def take_over(self, history: CoreHistory) -> None:
        """Know what the process knows that watches over the core."""
        self.num_core_deaths = history.num_deaths
        self._past = history.past
        self.prefix_ring = PrefixRing(history.prefixes)
        for news in history.news:
            self._on_message(news)
        self._heard_at = time.monotonic() - history.age_seconds

    def goodbye(self, client_id: str) -> None:
        """Another process that used the core is gone: its requests end."""
        self._send(Goodbye(client_id=client_id))

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Put other limits in force; `latest_profile` has them when they are."""
        self._wanted_thresholds = thresholds
        self._send(SetThresholds(thresholds=thresholds))

    def use_vocabulary(self, vocabulary: bytes) -> None:
        """Tell the core what tokens stand for, as msgpack; the first time alone."""
        if self._vocabulary is None:
            self._vocabulary = vocabulary
            self._send(UseVocabulary(vocabulary=vocabulary))

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Let the core send views into `latest_view` for as long as the block runs."""
        self._num_watchers += 1
        if self._num_watchers == 1:
            self._send(WatchCore(client_id=self.client_id, is_on=True))
        try:
            yield
        finally:
            self._num_watchers -= 1
            if self._num_watchers == 0:
                self._send(WatchCore(client_id=self.client_id, is_on=False))
                self.latest_view = None

    def generate(self, request: AddRequest) -> list[DeltaStream]:
        """Send a request; returns a stream for each of its sequences, to be closed in any case.

        Raises
        ------
        EngineDeadError
            There is no core that could take it now.
        """
        if not self.is_ready:
            raise EngineDeadError("The engine is not ready; send the request again in a moment.")
        ids = [sequence_id(request.request_id, i) for i in range(request.num_sequences)]
        streams = [DeltaStream(name, self._on_stream_closed) for name in ids]
        self._streams.update(zip(ids, streams, strict=True))
        self._send(request)
        return streams

    def abort(self, request_ids: Iterable[str]) -> None:
        """End requests without further deltas; unknown ids are ignored."""
        known = [request_id for request_id in request_ids if self._streams.pop(request_id, None)]
        if known:
            self._send(AbortRequests(request_ids=known))

    def fail(self, request_id: str, error: QuireError) -> None:
        """End one request: its reader gets the error, its blocks are freed."""
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.fail(error)
            self.abort([request_id])

    def fail_all(self, message: str) -> None:
        """End all requests in flight with an `EngineDeadError`."""
        streams = list(self._streams.values())
        for stream in streams:
            stream.fail(EngineDeadError(message))
        self.abort([stream.request_id for stream in streams])

    async def close(self) -> None:
        """End the core process; requests in flight end with an error."""
        self.fail_all("The server is shutting down.")
        if self._silence_watch is not None:
            self._silence_watch.cancel()
        await self._supervisor.close()
        self.facts = None

    def _send(self, message: ToCore) -> None:
        if self._supervisor.channel is not None:
            self._supervisor.channel.send(message)

    def _on_stream_closed(self, request_id: str) -> None:
        self.abort([request_id])

    async def _watch_silence(self) -> None:
        """Kill a core that loaded its model and is stuck since: stopped, or hung in a step."""
        while True:
            await asyncio.sleep(self._silence_seconds / 4)
            if self.facts is not None and self.age_seconds > self._stuck_seconds:
                _log.error("the core has said nothing for %.0f s; killing it", self.age_seconds)
                self._supervisor.kill()

    def _on_message(self, message: FromCore) -> None:
        if isinstance(message, CoreStats | CoreReady):
            # a refusal proves nothing: it comes from another thread than the step loop's
            self._heard_at = time.monotonic()
        self._take(message)
        if isinstance(message, CoreNews):
            self._observer.core_said(message)

    def _take(self, message: FromCore) -> None:
        match message:
            case StepOutputs(deltas=deltas):
                self._deliver(deltas)
            case CoreStats():
                older, self.latest_stats = self.latest_stats, message
                self._tell_if(message != older)
            case CoreProfile():
                older_profile, self.latest_profile = self.latest_profile, message
                self._tell_if(message != older_profile)
            case CoreView() if self._num_watchers:
                self.latest_view = message
            case PrefixChunks():
                self.prefix_ring.take(message)
                self._tell_if(True)
            case LoadProgress(stage=stage, fraction=fraction):
                self._on_progress(stage, fraction)
            case CoreReady(facts=facts):
                self._welcome(facts)
            case CoreFailed(error=error):
                self._failure = error

    def _tell_if(self, has_changed: bool) -> None:
        if has_changed:
            self._on_news()

    def _welcome(self, facts: ModelFacts) -> None:
        """A core has loaded the model: the first one, or another after one that died."""
        self.facts = facts
        if self._wanted_thresholds is not None:
            self._send(SetThresholds(thresholds=self._wanted_thresholds))
        if self._vocabulary is not None:
            self._send(UseVocabulary(vocabulary=self._vocabulary))
        if self._num_watchers:
            self._send(WatchCore(client_id=self.client_id, is_on=True))
        self._on_news()
        if not self._first_ready.done():
            self._first_ready.set_result(facts)
        elif not self._is_shared:
            _log.warning("the core is ready again")

    def _deliver(self, deltas: list[TokenDelta]) -> None:
        for delta in deltas:
            stream = self._streams.get(delta.request_id)
            if stream is None:
                continue  # aborted here while the step was under way
            if delta.finish_reason is not None:
                del self._streams[delta.request_id]
            stream.put(delta)

    def _on_exit(self, status: int) -> bool:
        """End what is in flight; the answer says whether to start another core."""
        self._past = self.totals()
        self.facts = None
        self.latest_stats = None
        self.latest_profile = None
        self.latest_view = None
        self.prefix_ring.clear()
        self.num_core_deaths += 1
        self._on_news()
        self._observer.core_ended(status)
        self.fail_all(_CORE_DIED)
        if self._first_ready.done() or self._is_shared:
            return True
        reason = self._failure or (
            f"The core process ended while loading ({describe_status(status)}); if the machine"
            " is short of memory, choose a smaller model or cache."
        )
        self._first_ready.set_exception(QuireError(reason))
        return False


def make_client_id() -> str:
    """A name for an API server at the core, unique for ever."""
    return uuid.uuid4().hex[:12]


def describe_status(status: int) -> str:
    """How a process ended, in words."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"
