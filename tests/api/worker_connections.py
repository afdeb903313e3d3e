"""Connections to chosen API workers: which process has a connection is read from the kernel."""

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.api.servers import MODEL, RunningServer, children_of, wait_until

_ESTABLISHED = "01"


def worker_pids(server: RunningServer) -> list[int]:
    """The processes that answer HTTP now."""
    return children_of(server.process.pid, "quire_engine.workers")


class Connections:
    """Connections to one server, closed at the end of the block."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._all: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close them all."""
        for connection in self._all:
            connection.close()
        self._all.clear()

    def open(self) -> socket.socket:
        """A connection that some worker has taken, or will."""
        host, port = self._server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        self._all.append(connection)
        return connection

    def open_to_each(self, each: int = 1) -> dict[int, list[socket.socket]]:
        """Connect until every worker has so many of the connections."""
        found: dict[int, list[socket.socket]] = {pid: [] for pid in worker_pids(self._server)}
        for _ in range(500):
            if all(len(own) >= each for own in found.values()):
                return found
            connection = self.open()
            found[self.owner(connection)].append(connection)
        raise AssertionError("there are workers that get no connection")

    def owner(self, connection: socket.socket) -> int:
        """The worker that has the other end of a connection; waits until one has."""
        found: list[int] = []

        def is_taken() -> bool:
            inode = _inode(connection)
            found[:] = [pid for pid in worker_pids(self._server) if inode in _sockets_of(pid)]
            return bool(found)

        wait_until(is_taken)
        return found[0]


def ask(
    connection: socket.socket,
    method: str,
    path: str,
    body: Any = None,
    key: str = "none",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """A request and its answer over a connection that stays open."""
    client = http.client.HTTPConnection("127.0.0.1")
    client.sock = connection
    own = {"content-type": "application/json", "authorization": f"Bearer {key}", **(headers or {})}
    client.request(method, path, None if body is None else json.dumps(body), own)
    response = client.getresponse()
    payload = response.read()
    is_json = response.headers["content-type"].startswith("application/json")
    return response.status, json.loads(payload) if is_json else payload.decode()


def begin_stream(connection: socket.socket, num_tokens: int, key: str = "none") -> None:
    """Ask for a streamed completion, and wait for its first events."""
    body = {"model": MODEL, "prompt": "Once", "max_tokens": num_tokens, "stream": True}
    payload = json.dumps(body | {"ignore_eos": True}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {key}\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    connection.sendall(head.encode() + payload)
    beginning = connection.recv(1 << 16)
    assert beginning.startswith(b"HTTP/1.1 200"), beginning


def goes_on(connection: socket.socket, num_events: int) -> bool:
    """Whether so many more events come over a stream."""
    received = b""
    while received.count(b"data: {") < num_events:
        more = connection.recv(1 << 16)
        if not more or b'"error"' in more:
            return False
        received += more
    return True


def read_rest(connection: socket.socket) -> bytes:
    """All that still comes of a stream, up to its end or the connection's."""
    received = b""
    with suppress(ConnectionError):
        while not received.endswith(b"0\r\n\r\n"):
            more = connection.recv(1 << 16)
            if not more:
                break
            received += more
    return received


def _inode(connection: socket.socket) -> str:
    """The socket at the server's end, as the kernel lists it."""
    own, other = (
        f":{address[1]:04X}" for address in (connection.getsockname(), connection.getpeername())
    )
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(other) and fields[2].endswith(own) and fields[3] == _ESTABLISHED:
            return f"socket:[{fields[9]}]"
    return ""


def _sockets_of(pid: int) -> set[str]:
    links = set()
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                links.add(str(path.readlink()))
    return links
