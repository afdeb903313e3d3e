"""uvicorn as it is used here: signals, logs and limits are others' business."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import Server

from quire_engine.config import ServerConfig
from quire_engine.server.count_board import CountBoard
from quire_engine.server.http_protocol import bound_protocol

_KEEP_ALIVE_SECONDS = 75
"""Idle connections are kept longer than load balancers keep theirs (mostly 60 s): who closes first
must not be the one that is about to be sent a request."""
_CLOSE_SECONDS = 2
"""Connections may take this long to close at the end."""


class HttpServer(Server):
    """uvicorn without its signal handling, which would end streams before they are drained."""

    def __init__(self, app: ASGIApp, config: ServerConfig, board: CountBoard) -> None:
        self._protocol = bound_protocol(config, board)
        self.is_started = asyncio.Event()
        """Connections can be answered."""
        super().__init__(
            uvicorn.Config(
                app,
                http=self._protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                proxy_headers=False,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_CLOSE_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Get ready to answer."""
        await super().startup(sockets)
        self.is_started.set()

    def make_protocol(self) -> asyncio.Protocol:
        """What answers on a connection that was accepted elsewhere; only while it is started."""
        return self._protocol(self.config, self.server_state, app_state={})

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `StopSignals`."""
        yield
