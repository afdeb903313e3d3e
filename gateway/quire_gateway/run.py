"""The gateway's process, from its ports to its exit.

    signal ── grace ─────────── no new requests ── answers end ── deadline ── exit 0
    /readyz is 503              503

The grace lets load balancers notice; after Ctrl-C there is none. A second signal goes to the
deadline at once.
"""

import asyncio
import logging
import os
import random
import re
import secrets
import signal
import socket
from contextlib import suppress
from pathlib import Path

from quire_engine.protocol.internal_token import MIN_SECRET_BYTES
from quire_engine.startup_heap import freeze_startup_heap
from quire_gateway.errors import SettingsError, shutting_down
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.deadlines import Deadlines
from quire_gateway.http.pool import CONNECT_SECONDS
from quire_gateway.http.request import Application
from quire_gateway.http.tasks import in_tasks
from quire_gateway.http.tls import CHECK_SECONDS, HANDSHAKE_SECONDS, Certificate
from quire_gateway.routing.source import Source, open_source
from quire_gateway.serving.claim import Court
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.gateway import Gateway
from quire_gateway.serving.management import Management
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.tracing import close_tracing, open_tracing
from quire_gateway.settings import GatewaySettings

_BACKLOG = 2048
_MANAGEMENT_CONNECTIONS = 64
_MANAGEMENT_BODY_BYTES = 4096
_POLL_SECONDS = 0.05
_LAST_WORDS_SECONDS = CONNECT_SECONDS + 0.5

_log = logging.getLogger(__name__)


class SharedBounds:
    """Bounds of the connections of one port, and what of them is used."""

    def __init__(
        self,
        *,
        max_connections: int,
        max_body_bytes: int,
        max_total_body_bytes: int,
        reader_stall_seconds: float,
    ) -> None:
        self.max_connections = max_connections
        self.max_body_bytes = max_body_bytes
        self.max_total_body_bytes = max_total_body_bytes
        self.reader_stall_seconds = reader_stall_seconds
        self.num_body_bytes = 0
        self.connections: set[ClientConnection] = set()
        self.deadlines = Deadlines()
        self.is_closing = False


async def run(settings: GatewaySettings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status is returned.

    Raises
    ------
    GatewayError
        It cannot start; the message is for the user.
    """
    source = await open_source(settings)
    try:
        return await _Process(settings, source).run()
    finally:
        await source.close()


class _Process:
    def __init__(self, settings: GatewaySettings, source: Source) -> None:
        self._settings = settings
        self._source = source
        self._certificate = _read_certificate(settings)
        self._tracing = open_tracing(settings.otlp_endpoint)
        self._metrics = GatewayMetrics()
        self._first, self._second = asyncio.Event(), asyncio.Event()
        self._was_interrupt = self._has_failed = False
        name = gateway_name()
        self._fleet = Fleet(
            gateway=name,
            root_secret=_read_secret(settings.root_secret_file),
            chance=random.random,
            stale_seconds=settings.stale_seconds,
            silence_seconds=settings.silence_seconds,
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
            tracing=self._tracing,
        )
        self._management = Management(
            self._fleet,
            self._metrics,
            name=name,
            stale_seconds=settings.stale_seconds,
            is_ready=self._is_ready,
            routing_problem=lambda: self._source.problem,
        )
        self._bounds = SharedBounds(
            max_connections=settings.max_connections,
            max_body_bytes=settings.max_body_bytes,
            max_total_body_bytes=settings.max_total_body_bytes,
            reader_stall_seconds=settings.reader_stall_seconds,
        )

    def _is_ready(self) -> bool:
        """It takes requests even while no engine is there: it holds them until one is."""
        return self._source.is_complete and not self._first.is_set()

    async def run(self) -> int:
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note, number)
        self._apply()
        small = SharedBounds(
            max_connections=_MANAGEMENT_CONNECTIONS,
            max_body_bytes=_MANAGEMENT_BODY_BYTES,
            max_total_body_bytes=_MANAGEMENT_CONNECTIONS * _MANAGEMENT_BODY_BYTES,
            reader_stall_seconds=settings.reader_stall_seconds,
        )
        tasks: list[asyncio.Task[None]] = [
            loop.create_task(self._fleet.run()),
            loop.create_task(self._source.follow(self._apply)),
            loop.create_task(self._renew_certificate()),
        ]
        for task in tasks:
            task.add_done_callback(self._on_ended)
        management = await _listen(
            in_tasks(self._management.answer),
            small,
            settings.management_host,
            settings.management_port,
        )
        server = await _listen(
            self._gateway.answer, self._bounds, settings.host, settings.port, self._certificate
        )
        freeze_startup_heap()
        print(
            f"ready: gateway on {_url_of(server, has_tls=self._certificate is not None)}/v1,"
            f" management on {_url_of(management)}",
            flush=True,
        )
        try:
            await self._first.wait()
            _log.info("asked to stop: answers may end")
            await self._drain(server)
        finally:
            for listening in (server, management):
                listening.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._fleet.close()
            close_tracing(self._tracing)
        return 1 if self._has_failed else 0

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        """What runs beside requests has failed: end, so that whoever started this does it anew."""
        if not task.cancelled() and task.exception() is not None:
            _log.critical("the gateway ends after a failure", exc_info=task.exception())
            self._has_failed = True
            self._first.set()

    def _apply(self) -> None:
        """Put the source's documents in force."""
        source = self._source
        self._fleet.update(source.documents)
        self._gateway.has_routing = source.is_complete
        self._metrics.routing_stale.set(source.is_stale)
        self._metrics.routing_source_up.set(source.is_complete and not source.problem)

    async def _renew_certificate(self) -> None:
        """Look at the certificate's files now and then."""
        while self._certificate is not None:
            await asyncio.sleep(CHECK_SECONDS)
            self._certificate.renew()

    async def _drain(self, server: asyncio.Server) -> None:
        settings = self._settings
        if not self._was_interrupt:
            await self._pause(settings.drain_grace_seconds)
        self._gateway.is_refusing = self._bounds.is_closing = True
        server.close()
        for connection in list(self._bounds.connections):
            connection.close_when_idle()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + settings.drain_seconds
        while self._bounds.connections and loop.time() < deadline and not self._second.is_set():
            await self._pause(_POLL_SECONDS)
        await self._end_answers()

    async def _end_answers(self) -> None:
        """Tell all that still wait: an error event where a stream has begun, 503 before that.

        A request that is on its way to an engine is told once it got there, or did not; hence, and
        for clients that are slow to read, the time.
        """
        self._fleet.refuse_all(shutting_down)
        deadline = asyncio.get_running_loop().time() + _LAST_WORDS_SECONDS
        while True:
            self._fleet.end_answers("shutdown")
            if not self._bounds.connections or asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or until the second signal."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._second.wait()

    def _note(self, number: signal.Signals) -> None:
        if self._first.is_set():
            self._second.set()
            return
        self._was_interrupt = number == signal.SIGINT
        self._first.set()


def gateway_name() -> str:
    """Return a name that no other gateway has, nor this one after it starts again."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


async def _listen(
    application: Application,
    bounds: SharedBounds,
    host: str,
    port: int,
    certificate: Certificate | None = None,
) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            lambda: ClientConnection(application, bounds),
            host,
            port,
            backlog=_BACKLOG,
            ssl=None if certificate is None else certificate.context,
            ssl_handshake_timeout=None if certificate is None else HANDSHAKE_SECONDS,
        )
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another by --host and"
            " --port, or by --management-host and --management-port"
        ) from error


def _url_of(server: asyncio.Server, *, has_tls: bool = False) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    scheme = "https" if has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _read_certificate(settings: GatewaySettings) -> Certificate | None:
    if not settings.tls_certificate_file:
        return None
    return Certificate(Path(settings.tls_certificate_file), Path(settings.tls_key_file))


def _read_secret(path: str) -> bytes | None:
    if not path:
        return None
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise SettingsError(f"{path}: the secret needs at least {MIN_SECRET_BYTES} bytes")
    return secret
