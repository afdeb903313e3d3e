"""A connection is bounded from its first byte on, before any route sees a request."""

import asyncio
import mmap
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from quire_engine.server.count_board import SEGMENT_BYTES, CountBoard, Gauge
from quire_engine.server.http_protocol import MAX_HEAD_BYTES, BoundedHttpProtocol

BEGINNING = b"POST / HTTP/1.1\r\nHost: x\r\n"
"""Of a head that needs an empty line to be complete."""


class Wire(asyncio.Transport):
    """Keeps what the server sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = asyncio.Event()
        self.answered = asyncio.Event()

    def write(self, data: Any) -> None:
        self.sent += bytes(data)
        self.answered.set()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        self.closed.set()


async def echo_length(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


def connect(idle_seconds: int = 30) -> tuple[BoundedHttpProtocol, Wire]:
    """A connection to an application that tells the length of the bodies that it gets."""
    app = Starlette(routes=[Route("/", echo_length, methods=["POST"])])
    config = uvicorn.Config(app, timeout_keep_alive=idle_seconds, ws="none", lifespan="off")
    config.load()
    protocol = BoundedHttpProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


@pytest.mark.parametrize("piece", [b"a" * 1000, b"a\r\nX-More: "], ids=["one header", "many"])
async def test_a_head_without_end_is_refused(piece: bytes) -> None:
    connection, wire = connect()
    connection.data_received(BEGINNING + b"X-Long: ")
    num_pieces = 0
    while not wire.is_closing():
        connection.data_received(piece)
        num_pieces += 1

    assert wire.sent.startswith(b"HTTP/1.1 400 ")
    assert b"head is longer than 65536 bytes" in wire.sent
    assert num_pieces == MAX_HEAD_BYTES // len(piece) + 1


@pytest.mark.parametrize("header", [b"X-Long: " + b"a" * MAX_HEAD_BYTES, b"X: y\r\n" * 33_000])
@pytest.mark.parametrize("piece_bytes", [1 << 10, 1 << 14, 1 << 20])
async def test_however_it_is_cut_a_long_head_is_refused(header: bytes, piece_bytes: int) -> None:
    connection, wire = connect()
    head = BEGINNING + header.strip() + b"\r\nContent-Length: 0\r\n\r\n"
    for start in range(0, len(head), piece_bytes):
        if not wire.is_closing():
            connection.data_received(head[start : start + piece_bytes])

    assert wire.sent.startswith(b"HTTP/1.1 400 ")
    assert b"head is longer than 65536 bytes" in wire.sent


@pytest.mark.parametrize("beginning", [b"", BEGINNING])
async def test_a_head_that_does_not_come_ends_the_connection(beginning: bytes) -> None:
    connection, wire = connect(idle_seconds=0)
    connection.data_received(beginning)

    await asyncio.wait_for(wire.closed.wait(), 10)

    assert wire.sent == b""


async def test_bodies_may_be_longer_than_heads_and_follow_each_other() -> None:
    size = 4 * MAX_HEAD_BYTES
    request = BEGINNING + b"Content-Length: %d\r\n\r\n" % size + b"a" * size
    connection, wire = connect()

    # the second head begins in the piece that ends the first body, and ends in the next
    for piece in (request[:50], request[50:] + request[:40], request[40:], request):
        connection.data_received(piece)
    while wire.sent.count(b"%d bytes" % size) < 3 and not wire.is_closing():
        wire.answered.clear()
        await asyncio.wait_for(wire.answered.wait(), 10)

    assert not wire.is_closing()
    assert wire.sent.count(b"HTTP/1.1 200 OK") == 3
    connection.connection_lost(None)


async def test_connections_of_all_processes_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = mmap.mmap(-1, 2 * SEGMENT_BYTES)
    own, other = (CountBoard(memory, num_segments=2, own=number) for number in (0, 1))
    monkeypatch.setattr(BoundedHttpProtocol, "board", own)
    monkeypatch.setattr(BoundedHttpProtocol, "max_connections", 3)
    other.gauge(Gauge.CONNECTIONS)[0] = 2
    first, wire = connect()
    _, refused = connect()

    assert not wire.is_closing()
    assert refused.sent.startswith(b"HTTP/1.1 503 ")
    assert refused.is_closing()
    first.connection_lost(None)
    assert own.gauges(Gauge.CONNECTIONS) == [1, 2]


@pytest.mark.parametrize("cut", [10, 150, 1000])
async def test_who_asks_for_another_protocol_is_answered_in_this_one(cut: int) -> None:
    asks = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    first = BEGINNING + asks + b"Content-Length: 40\r\n\r\n" + b"x" * 40
    chunked = BEGINNING + asks + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    plain = BEGINNING + b"Content-Length: 3\r\n\r\nabc"
    protocol, wire = connect()
    for request, answer in ((first, b"40 bytes"), (chunked, b"5 bytes"), (plain, b"3 bytes")):
        wire.sent = b""
        for start in range(0, len(request), cut):
            protocol.data_received(request[start : start + cut])
        while answer not in wire.sent:
            wire.answered.clear()
            await wire.answered.wait()
        assert wire.sent.startswith(b"HTTP/1.1 200 ")
        assert not wire.is_closing()


@pytest.mark.parametrize(
    ("head", "line"),
    [
        (b"POST / HTTP/1.1\r\n", b"HTTP/1.1 400 Bad Request"),
        (BEGINNING + b"host: y\r\n", b"HTTP/1.1 400 Bad Request"),
        (BEGINNING + b"Transfer-Encoding: gzip, chunked\r\n", b"HTTP/1.1 501 Not Implemented"),
    ],
)
async def test_heads_that_two_servers_would_read_differently_are_refused(
    head: bytes, line: bytes
) -> None:
    connection, wire = connect()
    connection.data_received(head + b"\r\n0\r\n\r\n")
    assert wire.sent.startswith(line)
    assert b'"code":"invalid_http"' in wire.sent
    assert wire.is_closing()


async def test_a_target_may_name_its_host() -> None:
    connection, wire = connect()
    target = b"http://127.0.0.1:8000/?a=b"
    head = BEGINNING.replace(b" / ", b" %b " % target)
    connection.data_received(head + b"content-length: 3\r\n\r\nabc")
    await asyncio.wait_for(wire.answered.wait(), 60)
    assert wire.sent.startswith(b"HTTP/1.1 200 OK")
    assert dict(connection.scope["headers"])[b"host"] == b"127.0.0.1:8000"
    connection.connection_lost(None)
