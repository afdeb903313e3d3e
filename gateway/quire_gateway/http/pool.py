"""Connections to one engine, kept for the next request."""

import asyncio
import errno
import logging
from collections.abc import Callable
from math import inf

from quire_gateway.http.engine_connection import EngineConnection

CONNECT_SECONDS = 2.0
IDLE_SECONDS = 60.0
"""Shorter than engines keep them (75 s): who closes first must not be the one that is about to be
sent a request."""
MAX_IDLE = 256
NO_FILES = "no_files"
"""The gateway itself may open no more connections."""
_TELL_SECONDS = 60.0

_log = logging.getLogger(__name__)


class ConnectionPool:
    """All connections to one engine."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[EngineConnection] = []
        self._is_closed = False
        self._told_at = -inf
        self._loop = asyncio.get_running_loop()

    def take_idle(self) -> EngineConnection | None:
        """Return a connection that was kept; None if there is none."""
        oldest = self._loop.time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since >= oldest and not connection.is_closing:
                return connection
            connection.abort()
        return None

    async def connect(self) -> EngineConnection:
        """Return a new connection.

        Raises
        ------
        OSError, TimeoutError
            The engine cannot be reached.
        """
        async with asyncio.timeout(CONNECT_SECONDS):
            _, made = await self._loop.create_connection(
                lambda: EngineConnection(self), self._host, self._port
            )
        return made

    async def open(self, tell: Callable[[EngineConnection | str], None]) -> None:
        """Make a new connection; if that fails, why is told: `connect` or `NO_FILES`."""
        try:
            made = await self.connect()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                tell("connect")
                return
            self._tell_no_files(error)
            tell(NO_FILES)
        else:
            tell(made)

    def _tell_no_files(self, error: OSError) -> None:
        """Say it, now and then."""
        now = self._loop.time()
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            _log.error(
                "no connection to engine %s:%d can be opened, by no fault of its own: %s; raise the"
                " limit (ulimit -n), or lower --max-connections",
                self._host,
                self._port,
                error.strerror,
            )

    def on_free(self, connection: EngineConnection) -> None:
        """Keep it."""
        if self._is_closed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)

    def on_lost(self, connection: EngineConnection) -> None:
        """Forget it."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close those that are idle; the others when their answers end."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()
