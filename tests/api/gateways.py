"""Starting real gateways for tests, and engines that do not do as they should."""

import asyncio
import gc
import json
import os
import re
import threading
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
import pytest

from quire_engine.profiles.step_time import constant_step_time
from quire_engine.protocol.state import Heartbeat
from tests.api.servers import MODEL, RunningServer, children_of, command_line
from tests.unit.gateway.builders import document, state

GATEWAY = ("-m", "quire_gateway")
WORKERS = os.environ.get("TEST_GATEWAY_WORKERS", "1")
"""Each test holds for a gateway of one process and for one of several."""
CODE = os.environ.get("TEST_GATEWAY_CODE", "plain Python")
"""What requests go through, as its log says; `make test-compiled` has it "compiled code"."""
_MANAGEMENT = re.compile(r"management on (http://\S+)")
_BEAT_SECONDS = 0.1

Answer = Callable[["FakeRequest"], Awaitable[None]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


BOTH_WAYS = pytest.mark.parametrize("client", ["engine", "front"], indirect=True)
"""A test of OpenAI's client, straight to the engine and through a gateway."""


def place(engine: "RunningServer | FakeEngine") -> dict[str, str]:
    """An engine as a routing document has it."""
    return {"address": engine.url.removeprefix("http://")}


def service(engines: Sequence["RunningServer | FakeEngine"], **changes: Any) -> dict[str, Any]:
    """A routing document of these engines."""
    fields = {"model_names": [MODEL], "engines": [place(one) for one in engines]}
    return document(**fields | changes)


class RunningGateway(RunningServer):
    """`python -m quire_gateway` with these documents, ready when the block begins."""

    def __init__(
        self,
        path: Path,
        documents: Sequence[dict[str, Any]],
        *flags: str,
        stderr: Path | None = None,
    ) -> None:
        self.routing = path
        self.write(documents)
        always = ("--routing", str(path), "--management-port", "0", "--log-format", "text")
        super().__init__(*always, "--workers", WORKERS, *flags, program=GATEWAY, stderr=stderr)

    def write(self, documents: Sequence[dict[str, Any]]) -> None:
        """Write the routing file."""
        self.routing.write_text(json.dumps(documents))

    def manage(self, path: str) -> httpx.Response:
        """One GET from the management port."""
        match = _MANAGEMENT.search("".join(self.output))
        assert match is not None
        return httpx.get(match[1] + path, timeout=60)

    def fleet(self, name: str = "chat") -> dict[str, Any]:
        """What it says of one service."""
        services = self.manage("/fleet").json()["services"]
        found: dict[str, Any] = next(one for one in services if one["name"] == name)
        return found

    def children(self, role: str) -> list[int]:
        """Process ids of its deciding process, or of its workers."""
        found = children_of(self.process.pid, "quire_gateway.workers.child")
        mark = f'"role":"{role}"'.encode()
        return [pid for pid in found if mark in command_line(pid)]

    def num_eligible(self, name: str = "chat") -> int:
        """Engines that requests are sent to."""
        return sum(one["is_eligible"] for one in self.fleet(name)["engines"])


class FakeRequest:
    """A request that a fake engine got, and the connection to answer on."""

    def __init__(self, engine: "FakeEngine", head: bytes, body: bytes) -> None:
        self.engine = engine
        self.head = head
        self.body = body
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    def headers(self) -> dict[str, str]:
        """By their names in lower case."""
        lines = self.head.decode().split("\r\n")[1:]
        return {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}

    async def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self.writer.write(data)
        await self.writer.drain()


class FakeEngine:
    """Tells a state like an engine that is never busy, and answers as a test wants.

    It promises to take no time at all, so that a gateway prefers it to any real engine.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[FakeRequest] = []
        self.num_connections = 0
        """Those on which requests came."""
        self.server: asyncio.Server
        self.is_silent = threading.Event()
        """Whether it hangs: its state does not beat any more."""
        self.may_go_on = threading.Event()
        """Set by tests for answers that wait for it."""
        self.url = ""

    async def open(self) -> None:
        """Listen."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            is_first = True
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET /state/stream "):
                    await self._tell(writer)
                    return
                self.num_connections += is_first
                is_first = False
                length = re.search(rb"content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                request = FakeRequest(self, head, body)
                request.reader, request.writer = reader, writer
                self.requests.append(request)
                await self._answer(request)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        now = state(step_time=constant_step_time(0.0))
        await self._send_event(writer, b"state", msgspec.json.encode(now))
        beat = msgspec.json.encode(Heartbeat(sequence=1, age_seconds=0.0))
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            if not self.is_silent.is_set():
                await self._send_event(writer, b"heartbeat", beat)

    async def _send_event(self, writer: asyncio.StreamWriter, name: bytes, data: bytes) -> None:
        event = b"event: %b\ndata: %b\n\n" % (name, data)
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()


class FakeEngines:
    """Fake engines on an event loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._engines: list[FakeEngine] = []
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # whoever connects just now is accepted and never served: nobody's fault, and no other
        # test's in which it would be collected
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()
            gc.collect()

    def add(self, answer: Answer) -> FakeEngine:
        """Start one."""
        engine = FakeEngine(answer)
        asyncio.run_coroutine_threadsafe(engine.open(), self._loop).result(10)
        self._engines.append(engine)
        return engine

    def listen(self, serve: Serve) -> str:
        """Serve connections in any way at all; returns host:port."""
        opening = asyncio.start_server(serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(opening, self._loop).result(10)
        self._servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _close_all(self) -> None:
        for server in (*self._servers, *(engine.server for engine in self._engines)):
            server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def answer_ok(request: FakeRequest) -> None:
    """Answer as an engine would, shortly."""
    body = b'{"from": "fake"}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    await request.send(head % len(body) + body)
