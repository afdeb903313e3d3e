"""The process that decides for all workers; it has no connection of a client.

Told to end, it is not ready any more, and goes on until the last worker has ended.
"""

import asyncio
import logging
import os
import random
import socket

import msgspec

from quire_engine.startup_heap import freeze_startup_heap
from quire_gateway.ending import LAST_WORDS_SECONDS, Ending
from quire_gateway.http.port import Port
from quire_gateway.http.tasks import in_tasks
from quire_gateway.http.tls import keep_renewed
from quire_gateway.identity import gateway_name, read_certificate, read_secret
from quire_gateway.routing.source import Source, open_source
from quire_gateway.serving.claim import Court
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.management import Management, management_bounds
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.workers import frames
from quire_gateway.workers.bench import Bench
from quire_gateway.workers.board import Board
from quire_gateway.workers.channel import Channel
from quire_gateway.workers.child import Plan, Tether
from quire_gateway.workers.snapshot import (
    PUBLISH_SECONDS,
    Loads,
    Routing,
    encoder,
    load_of,
    loads_decoder,
)

_HEAR_SECONDS = 2.0
"""One that starts again waits so long for engines' states: until then its predecessor's loads say
more than it knows."""
_POLL_SECONDS = 0.05

_log = logging.getLogger(__name__)


async def decide(plan: Plan) -> int:
    """Decide until told to end; the exit status is returned.

    Raises
    ------
    GatewayError
        It cannot start.
    """
    source = await open_source(plan.settings)
    try:
        return await _Decider(plan, source).run()
    finally:
        await source.close()


class _Decider:
    def __init__(self, plan: Plan, source: Source) -> None:
        settings = self._settings = plan.settings
        self._plan = plan
        self._source = source
        self._certificate = read_certificate(settings, plan.kept_certificate)
        self._metrics = GatewayMetrics()
        self._ending = Ending()
        self._routing, self._loads = Board(plan.routing_board), Board(plan.loads_board)
        self._published = b""
        last = self._loads.read() if plan.is_again else None
        self._last = Loads([], 0.0) if last is None else loads_decoder.decode(last)
        """What the decider before this one published."""
        name = gateway_name()
        self._fleet = Fleet(
            gateway=name,
            root_secret=read_secret(settings.root_secret_file),
            chance=random.random,
            stale_seconds=settings.stale_seconds,
            silence_seconds=settings.silence_seconds,
            hang_seconds=settings.hang_seconds,
        )
        clock = asyncio.get_running_loop().time
        self._bench = Bench(Court(self._fleet, self._metrics, name.encode(), clock))
        self._fleet.on_silent = self._bench.tell_silent
        self._management = Management(
            self._fleet,
            self._metrics,
            name=name,
            stale_seconds=settings.stale_seconds,
            is_ready=self._is_ready,
            routing_problem=lambda: self._source.problem,
            gather=self._bench.gather,
            certificate=self._certificate,
        )

    def _is_ready(self) -> bool:
        """Workers take requests even while no engine is there: these wait until one is."""
        return self._source.is_complete and not self._ending.is_told

    async def run(self) -> int:
        plan, ending = self._plan, self._ending
        loop = asyncio.get_running_loop()
        ending.watch_signals()
        tether = Tether(plan.tether, ending.hurry)
        self._apply()
        tasks = [
            loop.create_task(self._fleet.run()),
            loop.create_task(self._source.follow(self._apply)),
            loop.create_task(keep_renewed(self._certificate)),
        ]
        if plan.is_again:
            await self._hear()
        self._publish()
        tasks.append(loop.create_task(self._publish_on()))
        for task in tasks:
            ending.watch(task)
        small = management_bounds(self._settings.reader_stall_seconds)
        manage = in_tasks(self._management.answer)
        management = await Port.open(manage, small, plan.open_sockets())
        decoder = msgspec.msgpack.Decoder(list[frames.FromWorker])
        bench = self._bench
        server = await loop.create_unix_server(
            lambda: Channel(decoder, bench.on_frame, bench.on_open, bench.on_lost),
            sock=socket.socket(fileno=os.dup(plan.court)),
        )
        freeze_startup_heap()
        tether.tell_ready()
        try:
            await ending.first.wait()
            tether.tell_leaving()
            await self._outlive_workers()
        finally:
            for listening in (server, management):
                listening.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._fleet.close()
        return 1 if ending.has_failed else 0

    def _apply(self) -> None:
        """Put the source's documents in force, here and in all workers."""
        source = self._source
        self._fleet.update(source.documents)
        self._resume_limits()
        self._metrics.routing_stale.set(source.is_stale)
        self._metrics.routing_source_up.set(source.is_complete and not source.problem)
        if source.is_complete or not self._routing.number:
            routing = encoder.encode(Routing(tuple(source.documents), source.is_complete))
            if routing != self._published:
                self._routing.publish(routing)
                self._published = routing

    def _resume_limits(self) -> None:
        """Have keys go on where they were, each service once."""
        for one in list(self._last.services):
            service = self._fleet.services.get(one.service)
            if service is not None:
                service.access.resume(one.keys, self._last.at)
                self._last.services.remove(one)

    async def _hear(self) -> None:
        """Wait until engines are known again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _HEAR_SECONDS
        while not self._ending.is_told:
            if self._source.is_complete and loop.time() > until:
                return
            engines = [one for each in self._fleet.services.values() for one in each.endpoints]
            if self._source.is_complete and all(one.state is not None for one in engines):
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _publish(self) -> None:
        now, stale = asyncio.get_running_loop().time(), self._settings.stale_seconds
        services = self._fleet.services.items()
        loads = Loads([load_of(key, service, now, stale) for key, service in services], now)
        self._loads.publish(encoder.encode(loads))

    async def _publish_on(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            self._publish()

    async def _outlive_workers(self) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        seconds = settings.drain_grace_seconds + settings.drain_seconds + 2 * LAST_WORDS_SECONDS
        until = loop.time() + seconds
        while self._bench.num_workers and loop.time() < until:  # noqa: ASYNC110 - and by time
            await asyncio.sleep(_POLL_SECONDS)
