"""Several API processes before one core: the server's process, which starts and watches them all.

                         ┌──────────────┐ news, drains, limits, the end
    signals ───────────► │ WorkerPool   │ ◄──────────────┬───────────┐
                         └──────┬───────┘                ▼           ▼
               starts, watches  │              worker 0 (HTTP)   worker 1 (HTTP) ...
                                ▼                        ▲           ▲
                          core process ◄─────────────────┴───────────┘ requests, tokens

It answers no HTTP and sees no token. It alone hears what the core says of itself and passes that
on with a number: so all workers give the same account of the engine. A worker that dies takes its
own connections with it; the core is told, ends its requests, and another is started. What it had
counted stays on the board.
"""

import asyncio
import contextlib
import logging
import mmap
import os
import socket
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from quire_engine.config import EngineConfig
from quire_engine.core.client import CoreClient, describe_status, make_client_id
from quire_engine.core.shared_core import CoreNews, CoreObserver
from quire_engine.errors import ConfigError, QuireError
from quire_engine.execution.base import Progress
from quire_engine.protocol.messages import Message
from quire_engine.protocol.state import Loading
from quire_engine.server.background import run_in_daemon_thread
from quire_engine.server.count_board import SEGMENT_BYTES, CountBoard
from quire_engine.server.drain import Drain
from quire_engine.server.errors import ApiError
from quire_engine.server.loading import without_secrets
from quire_engine.server.metrics import ServerMetrics
from quire_engine.server.model_files import find_model
from quire_engine.server.progress import noting
from quire_engine.server.service import choose_model_name
from quire_engine.server.state_feed import StateFeed
from quire_engine.server.steering import CONFIRM_SECONDS, OwnSteering
from quire_engine.workers.messages import (
    Applied,
    BeginDrain,
    ChangeThresholds,
    CoreBegan,
    CoreEnded,
    CoreSaid,
    Ending,
    EndRequests,
    FromWorker,
    Idle,
    Launch,
    Leave,
    Loaded,
    LoadFailed,
    ModelFound,
    Order,
    OrderDone,
    PoolState,
    UndoDrain,
)
from quire_engine.workers.process import WorkerProcess

_FIRST_WAIT_SECONDS = 1.0
"""Before a worker is started again that died before it could take requests; doubles."""
_MAX_WAIT_SECONDS = 60.0
_LOADING_SECONDS = 0.5
_log = logging.getLogger(__name__)


class WorkerPool(CoreObserver):
    """All workers and the core; belongs to one event loop.

    Parameters
    ----------
    config
        With keys, for the workers; the core gets none.
    listener
        The socket that all workers take connections from.
    """

    def __init__(self, config: EngineConfig, listener: socket.socket) -> None:
        self._config = config
        self._core_config = without_secrets(config)
        self._model_name = choose_model_name(config)
        self._listener = listener
        self._num_workers = config.server.api_workers
        self._created_at = int(time.time())
        self._board_fd = os.memfd_create("quire-counts")
        os.ftruncate(self._board_fd, self._num_workers * SEGMENT_BYTES)
        self._board = mmap.mmap(self._board_fd, 0)
        self._feed = StateFeed()
        self._drain = Drain(lambda: self._tell_all(EndRequests(why=Ending.DRAINED)))
        self._steering = OwnSteering(self._drain, self._feed)
        self._state = PoolState()
        self._model: ModelFound | None = None
        self._client: CoreClient | None = None
        self._workers: list[WorkerProcess | None] = [None] * self._num_workers
        self._starts = count(1)
        self._keepers: list[asyncio.Task[None]] = []
        self._orders: set[asyncio.Task[None]] = set()
        self._change = asyncio.Event()
        self._failure: QuireError | None = None
        self._loop = asyncio.get_running_loop()
        self._told_loading_at = 0.0
        self.was_ready = False

    def start(self) -> None:
        """Start all workers: they answer probes at once."""
        self._keepers = [
            asyncio.create_task(self._keep(number), name=f"worker-{number}")
            for number in range(self._num_workers)
        ]

    async def load(self, report: Progress) -> None:
        """Fetch the model, start the core, and wait until all workers can take requests.

        Raises
        ------
        QuireError
            The model cannot be fetched, read or held; the message says what to do.
        """
        fetching = noting("fetching", self._note_loading, report)
        model = await run_in_daemon_thread(lambda: find_model(self._core_config, fetching))
        path = None if model is None else model.path
        self._model = ModelFound(
            path=None if path is None else str(path),
            revision=None if model is None else model.revision,
        )
        self._tell_all(self._model)
        await self._start_core(path, noting("loading", self._note_loading, report))
        await self._until(lambda: self._failure is not None or self._are_all_loaded())
        if self._failure is not None:
            raise self._failure
        self._state.is_open = self.was_ready = True
        self._feed.bump()
        await self._put_in_force()

    def stop_soon(self) -> None:
        """Be not ready any more, though requests are still taken."""
        self._state.is_stopping = True
        self._feed.bump()
        self._publish()

    def refuse_all(self) -> None:
        """Take no request any more."""
        self._state.is_closed = True
        self._publish()

    async def wait_idle(self) -> None:
        """Return as soon as no worker answers a request."""
        await self._until(lambda: all(worker.is_idle for worker in self._living()))

    def fail_running(self) -> None:
        """End all requests with an error."""
        self._tell_all(EndRequests(why=Ending.STOPPED))

    async def close(self) -> None:
        """End all workers, then the core."""
        self._tell_all(Leave())
        for task in (*self._keepers, *self._orders):
            task.cancel()
        await asyncio.gather(*self._keepers, *self._orders, return_exceptions=True)
        await asyncio.gather(*(worker.leave() for worker in self._living()))
        if self._client is not None:
            await self._client.close()
        os.close(self._board_fd)

    def core_began(self, address: str) -> None:
        """Let the workers say hello to it."""
        self._tell_all(CoreBegan(address=address))

    def core_said(self, news: CoreNews) -> None:
        """Let the workers know it."""
        self._tell_all(CoreSaid(sequence=self._feed.sequence, news=news))

    def core_ended(self, status: int) -> None:
        """Let the workers end what runs."""
        self._tell_all(CoreEnded(sequence=self._feed.sequence, status=status))

    async def _start_core(self, path: Path | None, report: Progress) -> None:
        client = CoreClient(
            self._core_config, path, on_progress=report, on_news=self._feed.bump, observer=self
        )
        self._client = self._steering.client = client
        await client.start()
        waiting = asyncio.create_task(self._until(lambda: self._failure is not None))
        ready = asyncio.create_task(client.wait_ready())
        await asyncio.wait((waiting, ready), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._failure is None:
            await ready
        ready.cancel()

    async def _keep(self, number: int) -> None:
        """Have a worker with this number, as long as the server lives."""
        wait_seconds = _FIRST_WAIT_SECONDS
        while True:
            if await self._live(number):
                wait_seconds = _FIRST_WAIT_SECONDS
            else:
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, _MAX_WAIT_SECONDS)

    async def _live(self, number: int) -> bool:
        """See a worker from start to end; whether it could take requests is returned."""
        try:
            worker = await self._start_worker(number)
        except OSError:
            _log.exception("API worker %d cannot be started; trying again", number)
            return False
        status = await worker.wait()
        self._workers[number] = None
        self._bury(worker, status)
        return worker.is_loaded

    async def _start_worker(self, number: int) -> WorkerProcess:
        worker = await WorkerProcess.start(
            number,
            make_client_id(),
            fds=(self._listener.fileno(), self._board_fd),
            on_message=self._on_message,
        )
        worker.applied = self._state.number
        self._workers[number] = worker  # and from here on it hears all that it is not told now
        worker.send(
            Launch(
                config=self._config,
                number=number,
                num_workers=self._num_workers,
                client_id=worker.client_id,
                socket_name=f"w{next(self._starts)}",
                listener_fd=self._listener.fileno(),
                board_fd=self._board_fd,
                created_at=self._created_at,
                state=self._state,
                model=self._model,
                core=self._client.history() if self._client else None,
            )
        )
        return worker

    def _bury(self, worker: WorkerProcess, status: int) -> None:
        """A worker has died: end its requests, and count them."""
        if self._client is not None:
            self._client.goodbye(worker.client_id)
        board = CountBoard(self._board, num_segments=self._num_workers, own=worker.number)
        ServerMetrics(self._model_name, board).settle_dead()
        what = f"API worker {worker.number} ended ({describe_status(status)})"
        if not self.was_ready and self._failure is None:
            self._failure = QuireError(f"{what} while it was loading; its log is above.")
        elif self.was_ready:
            _log.error("%s; starting another", what)
        self._tell_change()

    def _on_message(self, worker: WorkerProcess, message: FromWorker) -> None:
        match message:
            case Loaded():
                worker.is_loaded = True
            case LoadFailed(error=error, exit_status=status):
                kind = ConfigError if status == 2 else QuireError
                self._failure = self._failure or kind(error)
                if self.was_ready:
                    _log.error("API worker %d: %s", worker.number, error)
            case Applied(number=number):
                worker.applied = number
            case Idle():
                worker.is_idle = True
            case Order():
                task = asyncio.create_task(self._carry_out(worker, message))
                self._orders.add(task)
                task.add_done_callback(self._orders.discard)
        self._tell_change()

    async def _carry_out(self, worker: WorkerProcess, order: Order) -> None:
        """Do as ordered, and say so when it is in force at every worker."""
        is_in_force = True
        try:
            match order.what:
                case BeginDrain(seconds=seconds):
                    await self._steering.begin_drain(seconds)
                case UndoDrain():
                    await self._steering.undo_drain()
                case ChangeThresholds(thresholds=thresholds):
                    await self._steering.set_thresholds(thresholds)
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._put_in_force()
        except (ApiError, TimeoutError):
            is_in_force = False
        worker.send(OrderDone(number=order.number, is_in_force=is_in_force))

    async def _put_in_force(self) -> None:
        """Tell all workers the state, and wait until each has confirmed it."""
        number = self._publish()
        await self._until(lambda: all(worker.applied >= number for worker in self._living()))

    def _note_loading(self, loading: Loading) -> None:
        """The model has come so far; called from any thread, and often."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server ends
            self._loop.call_soon_threadsafe(self._tell_loading, loading)

    def _tell_loading(self, loading: Loading) -> None:
        """Tell the workers of each stage, and twice a second how far it is."""
        before, now = self._state.loading, time.monotonic()
        is_new = before is None or (before.phase, before.stage) != (loading.phase, loading.stage)
        if is_new or now >= self._told_loading_at + _LOADING_SECONDS:
            self._state.loading, self._told_loading_at = loading, now
            self._publish()

    def _publish(self) -> int:
        self._state.number += 1
        self._state.sequence = self._feed.sequence
        self._state.is_draining = self._drain.is_on
        self._tell_all(self._state)
        return self._state.number

    def _tell_all(self, message: Message) -> None:
        for worker in self._living():
            worker.send(message)

    def _living(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if worker is not None]

    def _are_all_loaded(self) -> bool:
        living = self._living()
        return len(living) == self._num_workers and all(worker.is_loaded for worker in living)

    def _tell_change(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._change.wait()
