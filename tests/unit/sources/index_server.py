"""A package index on loopback for tests, with the failures that real ones have."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def wheel_bytes(members: dict[str, bytes]) -> bytes:
    """A wheel's bytes, with what every wheel has besides."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo-1.0.dist-info/METADATA", "Name: demo\n" * 1000)
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@dataclass
class IndexState:
    """What the index has, how it misbehaves, and what it was asked."""

    pages: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    is_html: bool = False
    has_ranges: bool = True
    truncations: list[int] = field(default_factory=list)
    """Send this many bytes of a file and hang up; one entry for each request, in order."""
    statuses: list[int] = field(default_factory=list)
    """Answer these statuses first, one for each request."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def add_wheel(
        self,
        members: dict[str, bytes],
        *,
        filename: str = "demo-1.0-py3-none-any.whl",
        sha256: str | None = "right",
    ) -> bytes:
        """Offer a wheel; `sha256` may be a wrong digest, or None for an index that has none."""
        content = wheel_bytes(members)
        right = hashlib.sha256(content).hexdigest()
        hashes = {} if sha256 is None else {"sha256": right if sha256 == "right" else sha256}
        self.files[filename] = content
        entry: dict[str, object] = {
            "filename": filename,
            "url": f"../../files/{filename}",
            "hashes": hashes,
            "size": len(content),
        }
        package = filename.split("-")[0].replace("_", "-")
        self.pages.setdefault(package, []).append(entry)
        return content

    def downloads(self) -> list[dict[str, str]]:
        """Headers of the requests for files, in order."""
        return [headers for path, headers in self.requests if path.startswith("/files/")]


@contextmanager
def serve_index(state: IndexState) -> Iterator[str]:
    """Serve `state` on a free port; the index's address is given."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: IndexState

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append((self.path, headers))
        if self.state.statuses and (status := self.state.statuses.pop(0)) != 200:
            self._send(status, b"no", "text/plain")
        elif self.path.startswith("/simple/"):
            self._page(self.path.split("/")[2])
        else:
            self._file(self.path.rsplit("/", 1)[-1], headers.get("range"))

    def _page(self, package: str) -> None:
        if package not in self.state.pages:
            self._send(404, b"no such package", "text/plain")
        elif self.state.is_html:
            links = [
                f'<a href="{file["url"]}#sha256={file["hashes"]["sha256"]}">x</a>'  # type: ignore[index]
                for file in self.state.pages[package]
            ]
            self._send(200, "".join(links).encode(), "text/html")
        else:
            body = json.dumps({"files": self.state.pages[package]}).encode()
            self._send(200, body, "application/vnd.pypi.simple.v1+json")

    def _file(self, name: str, range_header: str | None) -> None:
        content = self.state.files[name]
        start = 0
        if range_header and self.state.has_ranges:
            start = int(range_header.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self._send(416, b"", "text/plain")
            return
        self.send_response(206 if start else 200)
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_header("content-range", span)
        self.send_header("content-length", str(len(content) - start))
        self.end_headers()
        end = start + self.state.truncations.pop(0) if self.state.truncations else len(content)
        self.wfile.write(content[start:end])
        if end < len(content):
            self.close_connection = True

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing: tests read `state.requests`."""
