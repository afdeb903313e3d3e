"""A client's connection, byte by byte, without a network."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from quire_gateway.http import client_connection
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.framing import frame_answer
from quire_gateway.http.port import SharedBounds
from quire_gateway.http.request import Answering, Request

GET = b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """What was written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.num_writes = 0
        self.is_closed = self.is_paused = False

    def write(self, data: Any) -> None:
        self.written += data
        self.num_writes += 1

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def answers(self) -> list[bytes]:
        """Bodies of answers with a length."""
        return [part.partition(b"\r\n\r\n")[2] for part in self.written.split(b"HTTP/1.1 ")[1:]]


class Later:
    """Answers when it is told to."""

    def __init__(self, client: ClientConnection, request: Request) -> None:
        self.client, self.request = client, request
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def on_due(self) -> None:
        self.go_on()

    def go_on(self) -> None:
        answer_at_once(self.client, self.request)


def answer_at_once(client: ClientConnection, request: Request) -> None:
    client.respond(200, [], request.target)
    client.end()


def connect(
    application: Callable[[ClientConnection, Request], Answering | None],
) -> tuple[ClientConnection, Wire, SharedBounds]:
    bounds = SharedBounds(
        max_connections=10,
        max_body_bytes=1000,
        max_total_body_bytes=10000,
        reader_stall_seconds=60,
    )
    connection, wire = ClientConnection(application, bounds), Wire()
    connection.connection_made(wire)
    return connection, wire, bounds


async def test_head_and_body_leave_together() -> None:
    connection, wire, _ = connect(answer_at_once)
    connection.data_received(GET % 7)
    assert wire.answers() == [b"/7"]
    assert wire.num_writes == 1


@pytest.mark.parametrize(
    ("begin", "drop", "said"),
    [
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n", b""),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n", b"y", b" 408 "),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
            b"1\r\ny\r\n",
            b" 408 ",
        ),
    ],
    ids=["head", "body", "chunks"],
)
async def test_who_sends_ever_so_little_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, begin: bytes, drop: bytes, said: bytes
) -> None:
    """Each byte anew gives no more time."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "_LINGER_SECONDS"):
        monkeypatch.setattr(client_connection, name, 0.3)
    connection, wire, bounds = connect(answer_at_once)
    connection.data_received(begin)
    async with asyncio.timeout(60):
        while not wire.is_closed:
            connection.data_received(drop)
            await asyncio.sleep(0.05)
    assert wire.written[8:13] == said
    assert bounds.num_body_bytes == 0


async def test_very_many_requests_sent_ahead_are_answered_one_after_the_other() -> None:
    """As many as a read may bring: answering one must not happen within answering another."""
    held: list[Later] = []

    def application(client: ClientConnection, request: Request) -> Answering | None:
        if held:
            answer_at_once(client, request)
            return None
        held.append(Later(client, request))
        return held[0]

    connection, wire, _ = connect(application)
    connection.data_received(b"".join(GET % number for number in range(5000)))
    assert wire.is_paused
    assert not wire.written
    held[0].go_on()
    assert wire.answers() == [b"/%d" % number for number in range(5000)]
    assert not wire.is_paused


async def test_very_many_wishes_for_another_protocol_are_answered_without_it() -> None:
    upgrade = b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
    ahead = b"".join((GET % number).removesuffix(b"\r\n") + upgrade for number in range(5000))
    connection, wire, _ = connect(answer_at_once)
    connection.data_received(ahead)
    assert wire.answers() == [b"/%d" % number for number in range(5000)]


async def test_only_who_speaks_http_1_1_is_told_to_go_on() -> None:
    head = b"POST /1 HTTP/1.%d\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n"
    for minor, told in ((1, b"HTTP/1.1 100 Continue\r\n\r\n"), (0, b"")):
        connection, wire, _ = connect(answer_at_once)
        connection.data_received(head % minor)
        assert wire.written == told
        connection.data_received(b"x")
        assert wire.written.endswith(b"/1")


async def test_nothing_is_answered_behind_the_last_answer() -> None:
    connection, wire, bounds = connect(answer_at_once)
    last = b"GET /1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    connection.data_received(GET % 0 + last + GET % 2)
    assert wire.answers() == [b"/0", b"/1"]
    assert wire.is_closed
    connection.connection_lost(None)
    assert bounds.num_body_bytes == 0
    assert not bounds.connections


async def test_who_leaves_answers_once_more_on_each_connection_and_says_so() -> None:
    connection, wire, bounds = connect(answer_at_once)
    connection.data_received(GET % 0)
    bounds.is_leaving = True
    assert not wire.is_closed  # idle, and what comes in this moment is not lost
    connection.data_received(GET % 1 + GET % 2)
    assert wire.answers() == [b"/0", b"/1"]
    assert wire.written.lower().count(b"connection: close") == 1
    assert wire.is_closed


async def test_a_client_that_leaves_ends_what_is_done_for_it() -> None:
    held: list[Later] = []

    def application(client: ClientConnection, request: Request) -> Answering:
        held.append(Later(client, request))
        return held[-1]

    connection, _, bounds = connect(application)
    body = b"POST /1 HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
    connection.data_received(body + body)
    assert bounds.num_body_bytes == 6
    connection.connection_lost(None)
    assert [one.is_cancelled for one in held] == [True]
    assert bounds.num_body_bytes == 0


async def test_a_failure_that_nobody_thought_of_ends_one_connection() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def application(client: ClientConnection, request: Request) -> None:
        raise ZeroDivisionError

    connection, wire, bounds = connect(application)
    connection.data_received(GET % 1)
    assert wire.is_closed
    assert not wire.written
    assert isinstance(told[0]["exception"], ZeroDivisionError)
    connection.connection_lost(None)
    assert not bounds.connections


async def test_the_answer_to_head_has_no_body() -> None:
    connection, wire, _ = connect(answer_at_once)
    connection.data_received(b"HEAD /1 HTTP/1.1\r\nhost: x\r\n\r\n" + GET % 2)
    assert wire.answers() == [b"", b"/2"]
    assert b"content-length: 2" in wire.written


@pytest.mark.parametrize("num_pieces", [1, 2, 40])
async def test_requests_may_come_in_pieces(num_pieces: int) -> None:
    connection, wire, bounds = connect(answer_at_once)
    text = b"POST /1 HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc" + GET % 2
    size = -(-len(text) // num_pieces)
    for start in range(0, len(text), size):
        connection.data_received(text[start : start + size])
    assert wire.answers() == [b"/1", b"/2"]
    assert bounds.num_body_bytes == 0


def framed(length: int | None, *, is_old: bool, keeps_alive: bool) -> tuple[set[bytes], bool, bool]:
    request = Request(b"GET", b"/", [], is_old, keeps_alive)
    head = frame_answer(request, 299, [(b"a", b"b")], length, keeps_alive=keeps_alive)
    lines = head.text.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 299 Unknown"
    assert lines[-2:] == [b"", b""]
    return set(lines[1:-2]) - {b"a: b"}, head.is_chunked, head.keeps_alive


def test_answers_are_framed_so_that_their_end_is_seen() -> None:
    length, close = b"content-length: 5", b"connection: close"
    chunked, keep = b"transfer-encoding: chunked", b"connection: keep-alive"
    assert framed(5, is_old=False, keeps_alive=True) == ({length}, False, True)
    assert framed(5, is_old=False, keeps_alive=False) == ({length, close}, False, False)
    assert framed(None, is_old=False, keeps_alive=True) == ({chunked}, True, True)
    assert framed(5, is_old=True, keeps_alive=True) == ({length, keep}, False, True)
    assert framed(None, is_old=True, keeps_alive=True) == ({close}, False, False)


def big_head(num_bytes: int) -> bytes:
    fields = b"".join(b"x-%d: %b\r\n" % (n, b"a" * 990) for n in range(num_bytes // 1000))
    return b"GET /large HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n"


@pytest.mark.parametrize("piece", [700, 1400, 60_000])
async def test_heads_are_counted_once_however_they_are_cut(piece: int) -> None:
    for size, is_taken in ((60_000, True), (80_000, False)):
        connection, wire, _ = connect(answer_at_once)
        head = big_head(size)
        for start in range(0, len(head), piece):
            connection.data_received(head[start : start + piece])
        assert wire.written.startswith(b"HTTP/1.1 200" if is_taken else b"HTTP/1.1 431")


async def test_bodies_and_requests_ahead_are_no_heads() -> None:
    connection, wire, bounds = connect(answer_at_once)
    bounds.max_body_bytes = bounds.max_total_body_bytes = 1 << 20
    body = b"x" * 300_000
    head = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.data_received(head)
    connection.data_received(body[:100_000])
    connection.data_received(body[100_000:] + GET % 1)
    connection.data_received(b"".join(GET % n for n in range(2, 4000)))
    assert wire.answers() == [b"/body", *(b"/%d" % n for n in range(1, 4000))]


async def test_who_reads_nothing_is_answered_nothing_more() -> None:
    connection, wire, _ = connect(answer_at_once)
    connection.data_received(GET % 1)
    connection.pause_writing()
    connection.data_received(GET % 2 + GET % 3)
    assert wire.answers() == [b"/1"]
    assert wire.is_paused
    connection.resume_writing()
    assert wire.answers() == [b"/1", b"/2", b"/3"]
    assert not wire.is_paused


FAULTY_HEADS = [
    (b"GET / HTTP/1.1\r\n", 400),
    (b"GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n", 400),
    (b"GET http://a/ HTTP/1.1\r\nhost: a\r\nHost: b\r\n", 400),
    (b"GET / HTTP/1.0\r\nhost: a\r\nHost: a\r\n", 400),
    (b"GET / HTTP/1.1\r\nhost: a/b\r\n", 400),
    (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n", 501),
    (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n", 501),
    (b"POST / HTTP/1.1\r\nhost: x\r\nTE: x\r\nTransfer-Encoding: CHUNKED;q=1\r\n", 501),
    (b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n", 400),
]


@pytest.mark.parametrize(("head", "status"), FAULTY_HEADS)
async def test_heads_that_two_servers_would_read_differently_are_refused(
    head: bytes, status: int
) -> None:
    connection, wire, _ = connect(answer_at_once)
    connection.data_received(head + b"\r\n" + b"0\r\n\r\n" + GET % 2)
    assert wire.written.startswith((b"HTTP/1.1 %d " % status, b"HTTP/1.1 400 "))
    assert b"connection: close" in wire.written
    assert wire.written.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.0\r\n",
        b"GET / HTTP/1.1\r\nhost:\r\n",
        b"GET / HTTP/1.1\r\nhost: [::1]:80 \r\n",
        b"GET / HTTP/1.1\r\nhost: my_service.t4.svc:8080\r\naccept: a\r\naccept: b\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n",
    ],
)
async def test_heads_that_are_as_they_should_be_are_taken(head: bytes) -> None:
    connection, wire, _ = connect(answer_at_once)
    connection.data_received(head + b"\r\n")
    assert wire.answers() == [b"/"]


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://other/v1/models?a=b", b"/v1/models?a=b", b"other"),
        (b"HTTPS://other:81", b"/", b"other:81"),
        (b"http://other?a", b"/?a", b"other"),
        (b"http:///v1/models", b"http:///v1/models", b"x"),
        (b"http://me@other/v1", b"http://me@other/v1", b"x"),
        (b"//other/v1", b"//other/v1", b"x"),
    ],
)
async def test_a_target_may_name_its_host(target: bytes, path: bytes, host: bytes) -> None:
    asked: list[Request] = []

    def application(client: ClientConnection, request: Request) -> None:
        asked.append(request)
        answer_at_once(client, request)

    connection, wire, _ = connect(application)
    connection.data_received(b"GET %b HTTP/1.1\r\nhost: x\r\nx: y\r\n\r\n" % target)
    if not asked:  # the parser knows no such target
        assert wire.written.startswith(b"HTTP/1.1 400 ")
        return
    assert (asked[0].target, asked[0].find(b"host")) == (path, host)
    assert wire.answers() == [path]
