"""The gateway's process, from its ports to its exit, where one does all."""

import asyncio
import logging
import random

from quire_engine.open_files import raise_open_files
from quire_engine.startup_heap import freeze_startup_heap
from quire_gateway.ending import Ending
from quire_gateway.errors import shutting_down
from quire_gateway.http.port import Port, SharedBounds, open_sockets, url_of
from quire_gateway.http.tasks import in_tasks
from quire_gateway.http.tls import keep_renewed
from quire_gateway.identity import gateway_name, read_certificate, read_secret
from quire_gateway.routing.source import Source, open_source
from quire_gateway.serving.claim import Court
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.gateway import Gateway
from quire_gateway.serving.management import Management, management_bounds
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.tracing import close_tracing, open_tracing
from quire_gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)


async def run(settings: GatewaySettings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status is returned.

    Raises
    ------
    GatewayError
        It cannot start; the message is for the user.
    """
    # each client's request has a connection to an engine; workers have the same limit, each
    raise_open_files(settings.connections_each, files_each=2)
    if settings.workers > 1:  # its modules are of no use to others
        from quire_gateway.workers.supervisor import supervise

        return await supervise(settings)
    source = await open_source(settings)
    try:
        return await _Process(settings, source).run()
    finally:
        await source.close()


class _Process:
    def __init__(self, settings: GatewaySettings, source: Source) -> None:
        self._settings = settings
        self._source = source
        self._certificate = read_certificate(settings)
        self._tracing = open_tracing(settings.otlp_endpoint)
        self._metrics = GatewayMetrics()
        self._ending = Ending()
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
        court = Court(self._fleet, self._metrics, name.encode(), clock)
        self._gateway = Gateway(
            self._fleet,
            self._metrics,
            claim=court.claim,
            is_ready=self._is_ready,
            request_timeout_seconds=settings.request_timeout_seconds,
            logs_requests=settings.log_requests,
            proxied_hosts=settings.all_proxied_hosts,
            tracing=self._tracing,
        )
        self._management = Management(
            self._fleet,
            self._metrics,
            name=name,
            stale_seconds=settings.stale_seconds,
            is_ready=self._is_ready,
            routing_problem=lambda: self._source.problem,
            certificate=self._certificate,
        )
        self._bounds = SharedBounds(
            max_connections=settings.max_connections,
            max_body_bytes=settings.max_body_bytes,
            max_total_body_bytes=settings.max_total_body_bytes,
            reader_stall_seconds=settings.reader_stall_seconds,
        )

    def _is_ready(self) -> bool:
        """It takes requests even while no engine is there: it holds them until one is."""
        return self._source.is_complete and not self._ending.is_told

    async def run(self) -> int:
        settings = self._settings
        loop = asyncio.get_running_loop()
        self._ending.watch_signals()
        self._apply()
        tasks: list[asyncio.Task[None]] = [
            loop.create_task(self._fleet.run()),
            loop.create_task(self._source.follow(self._apply)),
            loop.create_task(keep_renewed(self._certificate)),
        ]
        for task in tasks:
            self._ending.watch(task)
        manage = in_tasks(self._management.answer)
        small = management_bounds(settings.reader_stall_seconds)
        managed = open_sockets(settings.management_host, settings.management_port)
        management = await Port.open(manage, small, managed)
        sockets = open_sockets(settings.host, settings.port)
        port = await Port.open(self._gateway.answer, self._bounds, sockets, self._certificate)
        freeze_startup_heap()
        print(
            f"ready: gateway on {url_of(sockets, has_tls=self._certificate is not None)}/v1,"
            f" management on {url_of(managed)}",
            flush=True,
        )
        try:
            await self._ending.first.wait()
            _log.info("asked to stop: answers may end")
            await self._ending.give_grace(self._bounds, settings.drain_grace_seconds)
            self._gateway.is_refusing = True
            await self._ending.finish_answers(
                port, self._bounds, settings.drain_seconds, self._end_answers
            )
        finally:
            for listening in (port, management):
                listening.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._fleet.close()
            close_tracing(self._tracing)
        return 1 if self._ending.has_failed else 0

    def _apply(self) -> None:
        """Put the source's documents in force."""
        source = self._source
        self._fleet.update(source.documents)
        self._gateway.has_routing = source.is_complete
        self._metrics.routing_stale.set(source.is_stale)
        self._metrics.routing_source_up.set(source.is_complete and not source.problem)

    def _end_answers(self) -> None:
        self._fleet.refuse_all(shutting_down)
        self._fleet.end_answers("shutdown")
