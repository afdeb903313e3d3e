"""A process that moves bytes: connections of clients and to engines, and nothing that is decided.

It is like the one process of `--workers 1`, with another's decisions.
"""

import asyncio
import logging
import random
import socket
from contextlib import suppress
from itertools import count
from math import ceil

import msgspec

from quire_engine.startup_heap import freeze_startup_heap
from quire_gateway.ending import Ending
from quire_gateway.errors import shutting_down
from quire_gateway.http.port import Port, SharedBounds
from quire_gateway.http.tls import keep_renewed
from quire_gateway.identity import gateway_name, read_certificate, read_secret
from quire_gateway.serving.gateway import Gateway
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.tracing import close_tracing, open_tracing
from quire_gateway.workers import frames
from quire_gateway.workers.board import Board
from quire_gateway.workers.channel import Channel
from quire_gateway.workers.child import Plan, Tether
from quire_gateway.workers.remote import RemoteCourt
from quire_gateway.workers.services import WorkerDirectory
from quire_gateway.workers.snapshot import loads_decoder, routing_decoder

LOOK_SECONDS = 0.1
_LOOKS_UNTIL_SILENT = 20
"""A decider that has published nothing for so many looks hangs. Looks are counted and not seconds:
a worker that was stopped itself takes nobody for silent."""
_LOOKS_PER_REPORT = 10
_CONNECT_PAUSE_SECONDS = 0.1

_log = logging.getLogger(__name__)


async def work(plan: Plan) -> int:
    """Move bytes until told to end; the exit status is returned.

    Raises
    ------
    GatewayError
        It cannot start.
    """
    return await _Worker(plan).run()


class _Worker:
    def __init__(self, plan: Plan) -> None:
        settings = self._settings = plan.settings
        self._plan = plan
        self._certificate = read_certificate(settings, plan.kept_certificate)
        self._tracing = open_tracing(settings.otlp_endpoint)
        self._metrics = GatewayMetrics()
        self._ending = Ending()
        self._routing, self._loads = Board(plan.routing_board), Board(plan.loads_board)
        self._seen_routing = self._seen_loads = self._num_looks = 0
        clock = asyncio.get_running_loop().time
        self._directory = WorkerDirectory(
            num_workers=settings.workers,
            root_secret=read_secret(settings.root_secret_file),
            chance=random.random,
            clock=clock,
        )
        self._court = RemoteCourt(
            self._directory,
            self._metrics,
            name=f"{gateway_name()}-alone",
            chance=random.random,
            clock=clock,
            refresh=self._read_boards,
        )
        self._gateway = Gateway(
            self._directory,
            self._metrics,
            claim=self._court.claim,
            is_ready=self._is_ready,
            request_timeout_seconds=settings.request_timeout_seconds,
            logs_requests=settings.log_requests,
            proxied_hosts=settings.all_proxied_hosts,
            tracing=self._tracing,
        )
        self._gateway.has_routing = False
        self._port: Port | None = None
        self._bounds = SharedBounds(
            max_connections=settings.connections_each,
            max_body_bytes=settings.max_body_bytes,
            max_total_body_bytes=ceil(settings.max_total_body_bytes / settings.workers),
            reader_stall_seconds=settings.reader_stall_seconds,
        )

    def _is_ready(self) -> bool:
        return self._gateway.has_routing and not self._ending.is_told

    async def run(self) -> int:
        settings, ending = self._settings, self._ending
        loop = asyncio.get_running_loop()
        ending.watch_signals()
        tether = Tether(self._plan.tether, ending.hurry, self._replaced)
        self._read_boards()
        channel = await self._connect()
        tasks: list[asyncio.Task[None]] = [
            loop.create_task(self._look_on()),
            loop.create_task(self._stay_connected(channel)),
            loop.create_task(keep_renewed(self._certificate)),
        ]
        for task in tasks:
            ending.watch(task)
        sockets = self._plan.open_sockets()
        port = await Port.open(self._gateway.answer, self._bounds, sockets, self._certificate)
        self._port = port
        freeze_startup_heap()
        tether.tell_ready()
        try:
            await ending.first.wait()
            tether.tell_leaving()
            await ending.give_grace(self._bounds, settings.drain_grace_seconds)
            self._gateway.is_refusing = True
            await ending.finish_answers(
                port, self._bounds, settings.drain_seconds, self._end_answers
            )
            self._court.tell_totals()
        finally:
            port.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            close_tracing(self._tracing)
        return 1 if ending.has_failed else 0

    def _replaced(self) -> None:
        """Another worker takes new connections from the same sockets."""
        if self._port is not None:
            self._port.close()

    def _end_answers(self) -> None:
        self._court.close(shutting_down)
        self._directory.end_answers("shutdown")

    async def _look_on(self) -> None:
        for number in count(1):
            await asyncio.sleep(LOOK_SECONDS)
            self._read_boards()
            self._court.look()
            if number % _LOOKS_PER_REPORT == 0:
                self._court.tell_totals()

    def _read_boards(self) -> None:
        """Take what is new of what the decider has published, and see whether it still does."""
        number = self._routing.number
        if number != self._seen_routing:
            state = self._routing.read()
            if state is not None:
                routing = routing_decoder.decode(state)
                self._directory.take_routing(routing)
                self._gateway.has_routing = routing.is_complete
                self._seen_routing, self._seen_loads = number, 0
        number = self._loads.number
        self._num_looks += 1
        if number != self._seen_loads:
            state = self._loads.read()
            if state is not None:
                self._directory.take_loads(loads_decoder.decode(state))
                self._seen_loads, self._num_looks = number, 0
        self._court.is_hanging = self._num_looks > _LOOKS_UNTIL_SILENT

    async def _stay_connected(self, channel: "_Connected | None") -> None:
        while True:
            if channel is not None:
                await channel.lost.wait()
            channel = await self._connect()
            if channel is None:
                await asyncio.sleep(_CONNECT_PAUSE_SECONDS)

    async def _connect(self) -> "_Connected | None":
        """Reach the decider; while there is none, its socket holds the connection for the next."""
        court, lost = self._court, asyncio.Event()
        decoder = msgspec.msgpack.Decoder(list[frames.FromDecider])

        def on_lost(channel: Channel[frames.FromDecider]) -> None:
            lost.set()
            court.on_lost(channel)

        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.setblocking(False)
        try:
            with suppress(BlockingIOError):
                one.connect("\0" + self._plan.court_address)
            await asyncio.get_running_loop().create_unix_connection(
                lambda: Channel(decoder, court.on_frame, court.on_open, on_lost), sock=one
            )
        except OSError:
            one.close()
            return None
        return _Connected(lost)


class _Connected:
    """A connection to the decider."""

    def __init__(self, lost: asyncio.Event) -> None:
        self.lost = lost
