"""One API worker: answers HTTP as a server of its own does, and knows what all workers know.

It is `Service`, `Edge` and uvicorn as in a single process. What is not its own comes over the link:
the core's news, drains, limits and the end. Its requests go to the core directly.
"""

import asyncio
import logging
import mmap
import os
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from quire_engine import logs
from quire_engine.core.client import CoreClient
from quire_engine.core.launch import ignore_terminal_signals
from quire_engine.core.shared_core import SharedCore
from quire_engine.errors import QuireError, exit_status
from quire_engine.parent import die_with_parent
from quire_engine.server.acceptor import Acceptor
from quire_engine.server.access import Access
from quire_engine.server.app import create_app
from quire_engine.server.count_board import CountBoard
from quire_engine.server.edge import Edge
from quire_engine.server.http_server import HttpServer
from quire_engine.server.loading import without_secrets
from quire_engine.server.request_log import RequestLog
from quire_engine.server.request_record import current_request_id
from quire_engine.server.service import Service
from quire_engine.server.tracing import close_tracing, open_tracing
from quire_engine.startup_heap import freeze_startup_heap
from quire_engine.workers.link import Link
from quire_engine.workers.messages import (
    Applied,
    CoreBegan,
    CoreEnded,
    CoreSaid,
    Ending,
    EndRequests,
    Idle,
    Launch,
    Leave,
    Loaded,
    LoadFailed,
    ModelFound,
    OrderDone,
    PoolState,
    ToWorker,
)
from quire_engine.workers.orders import RemoteSteering

_log = logging.getLogger(__name__)


class Worker:
    """Everything between the link and the service; belongs to one event loop."""

    def __init__(self, launch: Launch, link: "Link[ToWorker]") -> None:
        self._link = link
        self._steering = RemoteSteering(link.send)
        memory = mmap.mmap(launch.board_fd, 0)
        board = CountBoard(memory, num_segments=launch.num_workers, own=launch.number)
        config = without_secrets(launch.config)
        self.service = Service(config, board=board, steering=self._steering)
        self.service.created_at = launch.created_at
        self._core = SharedCore(launch.client_id, launch.socket_name)
        self._client = CoreClient(config, None, on_progress=_ignore_progress, shared=self._core)
        self.service.use_core(self._client)
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = asyncio.Event()
        self.is_loaded = asyncio.Event()
        """Requests can be taken."""
        self.is_leaving = asyncio.Event()
        self.failure: QuireError | None = None
        self._know(launch)

    def take(self, message: ToWorker) -> None:
        """Do what the server's process says."""
        match message:
            case PoolState():
                self._apply(message)
                self._link.send(Applied(number=message.number))
            case ModelFound():
                self._load(message)
            case EndRequests(why=Ending.DRAINED):
                self.service.fail_drained()
            case EndRequests():
                self.service.fail_running()
            case OrderDone(number=number, is_in_force=is_in_force):
                self._steering.settle(number, is_in_force=is_in_force)
            case Leave():
                self.is_leaving.set()
            case _:
                self._hear(message)

    async def close(self) -> None:
        """Stop what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.service.close()

    def _know(self, launch: Launch) -> None:
        """Begin with what others know already."""
        if launch.core is not None:
            if launch.core.address is not None:
                self._core.begin(launch.core.address)
            self._client.take_over(launch.core)
        self._apply(launch.state)
        if launch.model is not None:
            self._load(launch.model)

    def _hear(self, message: ToWorker) -> None:
        match message:
            case CoreBegan(address=address):
                self._core.begin(address)
            case CoreSaid(news=news, sequence=sequence):
                self._core.take(news)
                self.service.feed.follow(sequence)
            case CoreEnded(status=status, sequence=sequence):
                self._core.end(status)
                self.service.feed.follow(sequence)

    def _apply(self, state: PoolState) -> None:
        service = self.service
        service.drain.is_on = state.is_draining
        service.is_stopping = state.is_stopping
        service.note_loading(state.loading)
        if state.is_closed and not service.is_closed:
            service.refuse_all()
            self._run(self._tell_idle())
        if state.is_open:
            self._opened.set()
            service.was_ready = True
        service.feed.follow(state.sequence)

    def _load(self, model: ModelFound) -> None:
        self._run(self._load_and_open(model))

    async def _load_and_open(self, model: ModelFound) -> None:
        """Get ready for requests, and take them once all workers can."""
        path = None if model.path is None else Path(model.path)
        self.service.model_revision = model.revision
        try:
            await self.service.read_defaults(path)
            tokenizer = await self.service.prepare(path)
        except QuireError as error:
            self._link.send(LoadFailed(error=str(error), exit_status=exit_status(error)))
            self.failure = error
            self.is_leaving.set()
            return
        freeze_startup_heap()
        self._link.send(Loaded())
        await self._opened.wait()
        self.service.open(tokenizer)
        self.service.feed.follow(self.service.feed.sequence)
        self.is_loaded.set()

    async def _tell_idle(self) -> None:
        await self.service.wait_idle()
        self._link.send(Idle())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.critical("the worker ends with an error", exc_info=task.exception())
            self.is_leaving.set()


async def serve_as_worker(end: socket.socket) -> int:
    """Serve until the server's process says otherwise, or is gone."""
    launched: asyncio.Future[Launch] = asyncio.get_running_loop().create_future()
    workers: list[Worker] = []
    is_orphan = asyncio.Event()

    def take(message: ToWorker) -> None:
        if workers:
            workers[0].take(message)
        elif isinstance(message, Launch):
            workers.append(_make_worker(message, link))
            launched.set_result(message)

    link: Link[ToWorker] = Link(ToWorker, take, is_orphan.set)
    await link.open(end)
    launch = await launched
    return await _serve(workers[0], launch, link)


def _make_worker(launch: Launch, link: "Link[ToWorker]") -> Worker:
    observability = launch.config.observability
    logs.configure(observability, f"api-{launch.number}", request_id=current_request_id)
    return Worker(launch, link)


async def _serve(worker: Worker, launch: Launch, link: "Link[ToWorker]") -> int:
    config, service = launch.config, worker.service
    tracing = open_tracing(
        config.observability.otlp_endpoint, os.environ, model_name=service.model_name
    )
    log = RequestLog(is_wanted=config.observability.log_requests)
    app = create_app(service)
    edge = Edge(app, app.state.routes, service, Access(config.access), log, tracing)
    board = service.metrics.board
    http = HttpServer(edge, config.server, board)
    serving = asyncio.create_task(http.serve([]), name="http")
    listener = socket.socket(fileno=launch.listener_fd)
    acceptor = Acceptor(listener, http.make_protocol, board, launch.number)
    try:
        if launch.state.is_open:  # others answer meanwhile
            await _first_of(worker.is_loaded, worker.is_leaving)
        acceptor.start()
        await worker.is_leaving.wait()
    finally:
        acceptor.stop()
        service.feed.close()
        http.should_exit = True
        await serving
        await worker.close()
        await close_tracing(tracing)
        link.close()
    return 0 if worker.failure is None else exit_status(worker.failure)


def _ignore_progress(stage: str, fraction: float) -> None:
    """Show nothing: the server's process does."""


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def main() -> int:
    """Run the worker that is described on standard input, a socket."""
    die_with_parent()
    ignore_terminal_signals()
    try:
        end = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    except OSError:
        raise SystemExit("quire_engine.workers is started by the server, not by hand") from None
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve_as_worker(end))
    return 1
