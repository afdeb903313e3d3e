"""The way to a real API server, with faults: it goes away, cuts watches, or answers with errors.

A client comes over plain HTTP on the loopback address and has no credentials; the proxy has those
of the user that the client is to be.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from hack.cluster.certificates import Authority

Fault = Callable[[str, str], int | None]
"""From a request's method and path to the status that it is refused with, or None."""

_HOP = frozenset(("connection", "content-length", "content-encoding", "transfer-encoding", "host"))


class FaultyApi:
    """Passes requests on while the block lasts, as long as nothing else was asked for."""

    def __init__(self, authority: Authority, server: str, user: str, folder: Path) -> None:
        self.kubeconfig = folder / "faulty.kubeconfig"
        self.num_refused = 0
        self.translate: Callable[[bytes], bytes] = bytes
        """Applied to each line of what the API server answers."""
        self._server = server
        self._tls = ssl.create_default_context(cafile=str(authority.own.certificate))
        pair = authority.issue(user.replace(":", "-"), user)
        self._tls.load_cert_chain(pair.certificate, pair.key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._fault: Fault = _no_fault
        self._port = 0
        self._site: web.TCPSite | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start())
        cluster = {"server": f"http://127.0.0.1:{self._port}"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "faulty",
            "clusters": [{"name": "faulty", "cluster": cluster}],
            "users": [{"name": "faulty", "user": {}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}],
        }
        self.kubeconfig.write_text(json.dumps(content))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def go_away(self) -> None:
        """Refuse connections, and drop those that there are."""
        self._do(self._stop_listening())

    def come_back(self) -> None:
        """Listen again, at the same port."""
        self._do(self._listen())

    def cut(self) -> None:
        """Drop all connections, watches among them, without a word."""
        self._do(self._cut())

    def refuse(self, fault: Fault) -> None:
        """Answer requests with these errors from now on."""
        self._fault, self.num_refused = fault, 0

    def be_well(self) -> None:
        """Answer all requests again."""
        self._fault = _no_fault
        if self._site is None:
            self.come_back()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._server_side = web.Server(self._pass_on, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server_side, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._listen()

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop_listening(self) -> None:
        if self._site is not None:
            await self._site.stop()
            self._site = None
        await self._cut()

    async def _cut(self) -> None:
        for connection in self._server_side.connections:  # those that rest, too
            if connection.transport is not None:
                connection.transport.abort()

    async def _end(self) -> None:
        await self._cut()
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        status = self._fault(request.method, request.path)
        if status is not None:
            self.num_refused += 1
            return _refusal(status)
        async with await self._ask(request) as answer:
            response = web.StreamResponse(
                status=answer.status, headers=_passed(dict(answer.headers))
            )
            await response.prepare(request)
            begun = b""
            async for chunk in answer.content.iter_any():
                whole, end, begun = (begun + chunk).rpartition(b"\n")
                await response.write(self.translate(whole + end))
            await response.write(self.translate(begun))
            await response.write_eof()
            return response

    async def _ask(self, request: web.BaseRequest) -> aiohttp.ClientResponse:
        """Begin to be answered, though the client leaves: half a TLS handshake leaks its socket."""
        asking = asyncio.ensure_future(
            self._session.request(
                request.method,
                f"{self._server}{request.raw_path}",
                headers=_passed(dict(request.headers)),
                data=await request.read() or None,
            )
        )
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_leave)
            raise


class FirstTimes:
    """Refuses every request the first time, with one error after another."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def __call__(self, method: str, path: str) -> int | None:
        """The status of a refusal; None once it passes."""
        if (method, path) in self._seen:
            return None
        self._seen.add((method, path))
        statuses = (500, 429, 503) if method == "GET" else (500, 429, 409, 503)
        return statuses[len(self._seen) % len(statuses)]


def _leave(asking: "asyncio.Future[aiohttp.ClientResponse]") -> None:
    if not asking.cancelled() and asking.exception() is None:
        asking.result().close()


def _no_fault(method: str, path: str) -> int | None:
    return None


def _refusal(status: int) -> web.Response:
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": "a fault that a test asked for",
        "code": status,
    }
    headers = {"retry-after": "1"} if status == 429 else {}
    return web.json_response(body, status=status, headers=headers)


def _passed(headers: dict[str, str]) -> dict[str, str]:
    passed = {name: value for name, value in headers.items() if name.lower() not in _HOP}
    if "protobuf" in passed.get("Accept", ""):
        passed["Accept"] = "application/json"  # which has lines
    return passed
