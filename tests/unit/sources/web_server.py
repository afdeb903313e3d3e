"""A web server on loopback for tests, with the failures that real ones have."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Answer:
    """What one address has."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class WebState:
    """What the server has, how it misbehaves, and what it was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    has_ranges: bool = True
    has_lengths: bool = True
    truncations: list[int] = field(default_factory=list)
    """Send this many bytes of a file and hang up; one entry for each download, in order."""
    statuses: list[int] = field(default_factory=list)
    """Answer these statuses first, one for each request; 200 lets one pass."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        """What is at a path, query included."""
        return self.answers.get(path, Answer(status=404))

    def ranges(self) -> list[str | None]:
        """The Range header of each request."""
        return [headers.get("range") for _, headers in self.requests]


@contextmanager
def serve_web(state: WebState, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve `state` on a free port; the address without a path is given."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up: some tests want them to."""


class _Handler(BaseHTTPRequestHandler):
    state: WebState

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append((self.path, headers))
        if self.state.statuses and (status := self.state.statuses.pop(0)) != 200:
            self._send(Answer(b"no", status), 0)
            return
        answer = self.state.answer(self.path, headers)
        self._send(answer, self._start(answer, headers) if answer.status == 200 else 0)

    def _start(self, answer: Answer, headers: dict[str, str]) -> int:
        """Where a range begins, if the server heeds ranges and it is of this version."""
        condition = headers.get("if-range")
        names = (answer.headers.get("etag"), answer.headers.get("last-modified"))
        is_other = condition is not None and condition not in names
        if "range" not in headers or not self.state.has_ranges or is_other:
            return 0
        return int(headers["range"].removeprefix("bytes=").removesuffix("-"))

    def _send(self, answer: Answer, start: int) -> None:
        whole = answer.body
        if start and start >= len(whole):
            answer, start = Answer(status=416), 0
            whole = b""
        self.send_response(206 if start else answer.status)
        if start:
            self.send_header("content-range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
        if self.state.has_lengths:
            self.send_header("content-length", str(len(whole) - start))
        else:
            self.close_connection = True
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        is_file = answer.status == 200 and len(whole) > 100 and self.state.truncations
        end = start + self.state.truncations.pop(0) if is_file else len(whole)
        self.wfile.write(whole[start:end])
        if end < len(whole):
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Say nothing: tests read `state.requests`."""
