"""Takes connections from the socket that the server listens on; several workers each their share.

Not the event loop's own way, which takes one connection a turn: a turn is long when thousands of
streams are written, and probes waited for many seconds behind those who came before them.

Whichever worker wakes up first takes a connection, and the kernel wakes some more readily than
others. So a worker that has more connections than another leaves a new one to that for a moment,
and takes it only if nobody else has. Measured: docs/design/workers.md.

One socket and not one for each worker (SO_REUSEPORT): there, chance decides, which is far from
even for few long streams; and connections that wait for a worker that dies would be lost.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from quire_engine.server.count_board import CountBoard, Gauge

_MAX_AT_ONCE = 64
"""Connections taken before other tasks of the event loop get their turn."""
_YIELD_SECONDS = 0.005
"""A worker with more connections than another leaves a new one to others for so long."""
_TURN_CONNECTIONS = 4
"""Nobody took it: so many are taken at once, for who should have may hang."""
_REST_SECONDS = 1.0
"""No file is left for a connection: the next one is tried after so long, and said once."""

_log = logging.getLogger(__name__)


class Acceptor:
    """Accepts until it is stopped; belongs to one event loop."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        board: CountBoard,
        number: int,
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._board = board
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._pausing: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept from now on."""
        self._listener.setblocking(False)
        self._board.gauge(Gauge.ACCEPTING)[0] = 1.0
        self._watch()

    def _watch(self) -> None:
        self._pausing = None
        self._loop.add_reader(self._listener, self._on_connection)

    def stop(self) -> None:
        """Accept no more; the socket goes on for others."""
        self._board.gauge(Gauge.ACCEPTING)[0] = 0.0
        self._loop.remove_reader(self._listener)
        if self._pausing is not None:
            self._pausing.cancel()
            self._pausing = None

    def _on_connection(self) -> None:
        for _ in range(_MAX_AT_ONCE):
            if self._is_ahead():
                self._pause(_YIELD_SECONDS, self._take_turn)
                return
            if not self._accept():
                return

    def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._listener)
        self._pausing = self._loop.call_later(seconds, then)

    def _take_turn(self) -> None:
        self._pausing = None
        for _ in range(_TURN_CONNECTIONS):
            if not self._accept():
                break
        if self._pausing is None:
            self._watch()

    def _is_ahead(self) -> bool:
        connections = self._board.gauges(Gauge.CONNECTIONS)
        own = connections.pop(self._number) + len(self._opening)
        are_accepting = self._board.gauges(Gauge.ACCEPTING)
        del are_accepting[self._number]
        others = zip(connections, are_accepting, strict=True)
        return any(own > number for number, is_accepting in others if is_accepting)

    def _accept(self) -> bool:
        """Take a connection; the answer is no where there is none, or no file for it."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return False
        except OSError as error:  # no file is left: others may have some
            _log.warning("a connection could not be accepted: %s", error.strerror)
            self._pause(_REST_SECONDS, self._watch)
            return False
        opening = self._loop.create_task(self._open(connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return True

    async def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:
            connection.close()  # it is gone already
