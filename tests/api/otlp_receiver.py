"""A receiver of traces by OTLP over HTTP: it reads the protobuf as any collector does."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Span:
    """One span with its attributes as a dictionary."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.name: str = raw.name
        self.attributes = {item.key: _value(item.value) for item in raw.attributes}

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self.raw.end_time_unix_nano - self.raw.start_time_unix_nano) / 1e9


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found


class OtlpReceiver:
    """Listens on a free port of the loopback for as long as the block runs."""

    def __init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(self.path, body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.paths: set[str] = set()
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.bytes = b""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        """Decode what was sent."""
        self.paths.add(path)
        self.bytes += body
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            attributes = resource.resource.attributes
            self.resources.append({item.key: _value(item.value) for item in attributes})
            for scope in resource.scope_spans:
                self.spans += map(Span, scope.spans)

    def named(self, name: str) -> list[Span]:
        """Spans of this name."""
        return [span for span in self.spans if span.name == name]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
