"""Clients that leave and clients that stop reading: the engine is freed, and memory bounded."""

import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api.gateways import (
    STREAM_HEAD,
    FakeEngines,
    FakeRequest,
    RunningGateway,
    chunk,
    service,
)
from tests.api.servers import MODEL, wait_until

_NUM_CLIENTS = 30
_MOST_KB_EACH = 1024
"""Of the gateway's own memory; what the system's buffers hold is not in it."""


def ask(gateway: RunningGateway, body: dict[str, object]) -> socket.socket:
    """Send a request, and read nothing."""
    text = json.dumps({"model": MODEL, "prompt": "Once", "stream": True} | body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(text)
    place = urlsplit(gateway.url)
    assert place.hostname is not None
    client = socket.create_connection((place.hostname, place.port or 80))
    client.settimeout(60)
    client.sendall(head + text)
    return client


def resident_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


class Ending:
    """Answers that go on until the gateway ends the connection."""

    def __init__(self, *, begins: bool) -> None:
        self.begins = begins
        self.has_begun, self.is_over = threading.Event(), threading.Event()

    async def __call__(self, request: FakeRequest) -> None:
        if self.begins:
            await request.send(STREAM_HEAD + chunk(b'data: {"n": 1}\n\n'))
        self.has_begun.set()
        try:
            await request.reader.read()
        finally:
            self.is_over.set()


class Flood:
    """Answers without an end, as fast as they are taken."""

    def __init__(self) -> None:
        self.num_bytes = 0

    async def __call__(self, request: FakeRequest) -> None:
        piece = chunk(b"data: " + b"x" * 65000 + b"\n\n")
        await request.send(STREAM_HEAD)
        while True:
            await request.send(piece)
            self.num_bytes += len(piece)


@pytest.mark.parametrize("begins", [False, True], ids=["waits", "streams"])
def test_a_client_that_leaves_frees_its_engine(tmp_path: Path, begins: bool) -> None:
    answer = Ending(begins=begins)
    with FakeEngines() as fakes:
        fake = fakes.add(answer)
        with RunningGateway(tmp_path / "r.json", [service([fake])]) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)
            client = ask(gateway, {})
            assert answer.has_begun.wait(60)
            if begins:
                assert client.recv(10)
            client.close()
            assert answer.is_over.wait(60)
            wait_until(lambda: gateway.fleet()["engines"][0]["in_flight"] == 0)


def test_many_clients_that_read_nothing_take_little_memory(tmp_path: Path) -> None:
    flood = Flood()
    with FakeEngines() as fakes, ExitStack() as stack:
        documents = [service([fakes.add(flood)])]
        gateway = stack.enter_context(RunningGateway(tmp_path / "r.json", documents))
        wait_until(lambda: gateway.num_eligible() == 1)
        before = resident_kb(gateway.process.pid)
        for _ in range(_NUM_CLIENTS):
            stack.enter_context(ask(gateway, {}))
        last = [-1]

        def is_held_up() -> bool:
            """No more is taken from the engine than at the last look."""
            is_still = flood.num_bytes == last[0] > 0
            last[0] = flood.num_bytes
            return is_still

        wait_until(is_held_up, pause_seconds=0.5)
        assert resident_kb(gateway.process.pid) - before < _NUM_CLIENTS * _MOST_KB_EACH
