"""Serving one model until a signal: the server's life from the port to the exit status.

The port is taken first, so that a busy one is told at once and not after minutes of loading. HTTP
is answered while the model loads: /healthz is 200, /readyz 503.
"""

import asyncio
import logging
import os

import uvloop

from quire_engine import logs
from quire_engine.config import EngineConfig
from quire_engine.errors import QuireError, exit_status
from quire_engine.open_files import raise_open_files
from quire_engine.server.acceptor import Acceptor
from quire_engine.server.access import Access
from quire_engine.server.app import create_app
from quire_engine.server.edge import Edge
from quire_engine.server.http_server import HttpServer
from quire_engine.server.listener import listen, url_of
from quire_engine.server.loading import choose_progress, load_unless_stopped, without_secrets
from quire_engine.server.request_log import RequestLog
from quire_engine.server.request_record import current_request_id
from quire_engine.server.service import Service
from quire_engine.server.shutdown import StopSignals, drain
from quire_engine.server.tracing import close_tracing, open_tracing
from quire_engine.startup_heap import freeze_startup_heap

_log = logging.getLogger(__name__)


def run(config: EngineConfig) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status is returned.

    Raises
    ------
    QuireError
        The server could not start; the message is for the user. Where the log is JSON, it is
        logged instead.
    """
    logs.configure(config.observability, "api", request_id=current_request_id)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if config.server.api_workers > 1:
                from quire_engine.workers.run import serve_with_workers

                return runner.run(serve_with_workers(config))
            return runner.run(serve(config))
    except QuireError as error:
        if config.observability.log_format == "text":
            raise
        _log.critical("%s", error)
        return exit_status(error)


async def serve(config: EngineConfig) -> int:
    """Serve on the running event loop; see `run`, which brings the fast one."""
    access = Access(config.access)
    config = without_secrets(config)
    announce = logs.announcer(config.observability, "api")
    raise_open_files(config.server.max_connections)
    with listen(config.server.host, config.server.port) as listener:
        url = url_of(listener)
        signals = StopSignals()
        signals.install()
        service = Service(config)
        tracing = open_tracing(
            config.observability.otlp_endpoint, os.environ, model_name=service.model_name
        )
        log = RequestLog(is_wanted=config.observability.log_requests)
        app = create_app(service)
        edge = Edge(app, app.state.routes, service, access, log, tracing)
        board = service.metrics.board
        http = HttpServer(edge, config.server, board)
        serving = asyncio.create_task(http.serve([]), name="http")
        await http.is_started.wait()
        acceptor = Acceptor(listener, http.make_protocol, board, number=0)
        acceptor.start()
        try:
            announce(f"listening on {url}, loading {service.model_name}")
            if await load_unless_stopped(service.load(choose_progress(config)), signals):
                freeze_startup_heap()
                announce(f"ready: {service.model_name} on {url}/v1")
                await signals.first.wait()
                _log.info("asked to stop: running requests may finish")
            await drain(service, config.server, signals)
        finally:
            acceptor.stop()
            service.feed.close()
            http.should_exit = True
            await serving
            await service.close()
            await close_tracing(tracing)
            signals.remove()
    return 0
