"""A stand-in for the engine's server: the few routes that clients here use, on loopback."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from quire_engine.config import EngineConfig


@dataclass
class StandIn:
    """What the server answers, and what it was asked."""

    pieces: list[str] = field(default_factory=lambda: ["Par", "is", "."])
    refusal: str | None = None
    stream_error: str | None = None
    is_cut_off: bool = False
    num_not_ready: int = 0
    """So many times, /readyz answers 503 first."""
    requests: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    interrupted: Event = field(default_factory=Event)

    def run(self, config: EngineConfig) -> int:
        """Serve as `quire_engine.server.run.run` does: until Ctrl-C, then with status 0."""
        previous = signal.signal(signal.SIGINT, lambda *_: self.interrupted.set())
        try:
            with self.serve(config.server.port):
                while not self.interrupted.wait(0.05):
                    pass
        finally:
            signal.signal(signal.SIGINT, previous)
        print("quire: the server's own lines")
        return 0

    @contextmanager
    def serve(self, port: int = 0) -> Iterator[str]:
        """Serve in a thread; the address is given."""
        handler = type("Handler", (_Handler,), {"stand_in": self})
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn

    def do_GET(self) -> None:
        if self.path == "/readyz" and self.stand_in.num_not_ready > 0:
            self.stand_in.num_not_ready -= 1
            self._send(503, {})
        else:
            self._send(200, {"data": [{"id": "demo"}]})

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self.stand_in.requests.append((self.path, json.loads(self.rfile.read(length))))
        if self.stand_in.refusal is not None:
            self._send(400, {"error": {"message": self.stand_in.refusal}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if self.stand_in.is_cut_off:
            self.send_header("content-length", "1000000")
        self.end_headers()
        for event in self._events():
            self.wfile.write(f"data: {event}\n\n".encode())

    def _events(self) -> Iterator[str]:
        is_chat = self.path == "/v1/chat/completions"
        if is_chat:
            yield json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for piece in self.stand_in.pieces:
            yield json.dumps(
                {"choices": [{"delta": {"content": piece}} if is_chat else {"text": piece}]}
            )
        if self.stand_in.stream_error is not None:
            yield json.dumps({"error": {"message": self.stand_in.stream_error}})
        yield json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        yield json.dumps({"choices": [], "usage": {}})
        yield "[DONE]"

    def _send(self, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""
