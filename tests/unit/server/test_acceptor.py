"""How many connections are taken in a turn of the event loop."""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from quire_engine.server.acceptor import Acceptor
from quire_engine.server.count_board import CountBoard, Gauge
from quire_engine.server.listener import listen

NUM_CLIENTS = 50


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as made:
        yield made


@pytest.fixture
def clients(listener: socket.socket) -> Iterator[None]:
    """Connections that wait to be taken."""
    with ExitStack() as stack:
        for _ in range(NUM_CLIENTS):
            stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
        yield


class Counted(asyncio.Protocol):
    """Counts itself as a server's connection does, and closes at the end."""

    def __init__(self, board: CountBoard) -> None:
        self._gauge = board.gauge(Gauge.CONNECTIONS)
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._gauge[0] += 1


async def run_turns(num_turns: int, board: CountBoard) -> list[int]:
    for _ in range(num_turns):
        await asyncio.sleep(0)
    return board.gauges(Gauge.CONNECTIONS)


@pytest.mark.usefixtures("clients")
async def test_all_that_wait_are_taken_in_a_few_turns(listener: socket.socket) -> None:
    board, made = CountBoard.alone(), list[Counted]()

    def make() -> Counted:
        made.append(Counted(board))
        return made[-1]

    acceptor = Acceptor(listener, make, board, number=0)
    acceptor.start()
    try:
        assert await run_turns(NUM_CLIENTS // 4, board) == [NUM_CLIENTS]
    finally:
        acceptor.stop()
        for protocol in made:
            assert protocol.transport is not None
            protocol.transport.close()
        await asyncio.sleep(0)


class Full:
    """A socket of a process that has no file left for a connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def fileno(self) -> int:
        return self._listener.fileno()

    def setblocking(self, flag: bool) -> None:
        self._listener.setblocking(flag)

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.usefixtures("clients")
async def test_a_process_without_files_rests(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    board = CountBoard.alone()
    acceptor = Acceptor(Full(listener), asyncio.Protocol, board, number=0)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        acceptor.start()
        await run_turns(500, board)
        acceptor.stop()
    assert 1 <= caplog.text.count("Too many open files") < 50
