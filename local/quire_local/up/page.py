"""The live page: one document, and a stream of what happens for those who look.

It is for this machine alone, whatever address clients come in by: it names engines and services and
asks for no key. A browser elsewhere that is made to ask here is refused by the name it asks for.
"""

import asyncio
import base64
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files

import httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quire_engine.errors import ConfigError
from quire_local.up.control import Control
from quire_local.up.live_views import LiveViews
from quire_local.up.page_port import PagePort
from quire_local.up.snapshot import Snapshot

_HOST = "127.0.0.1"
_OWN_NAMES = frozenset(("localhost", "127.0.0.1"))
_PERIOD_SECONDS = 0.25
_HEARTBEAT_PERIODS = 4
_NOT_STORED = {"cache-control": "no-store"}
_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


class _Server(uvicorn.Server):
    """Leaves signals to the run."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def serve_page(
    snapshot: Callable[[], Snapshot], control: Control, http: httpx.AsyncClient, place: PagePort
) -> None:
    """Serve until cancelled.

    Raises
    ------
    ConfigError
        The port that was chosen is taken.
    """
    page = _Page(snapshot, control, LiveViews(http, control.token_of))
    with _listen(place) as listening:
        place.on_open(f"http://{_HOST}:{listening.getsockname()[1]}/")
        config = uvicorn.Config(
            _OwnMachine(page.routes()),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
        )
        await _Server(config).serve(sockets=[listening])


def _listen(place: PagePort) -> socket.socket:
    try:
        return socket.create_server((_HOST, place.port))
    except OSError as error:
        if place.is_chosen:
            raise ConfigError(
                f"cannot show the live page on port {place.port}: {error.strerror};"
                " choose another by --page-port"
            ) from error
        return socket.create_server((_HOST, 0))


class _OwnMachine:
    """Refuses what a browser asks because another site wants it to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        headers = Request(scope).headers
        name = headers.get("host", "").rpartition(":")[0]
        site = headers.get("sec-fetch-site", "none")
        if name in _OWN_NAMES and site in ("none", "same-origin"):
            await self._app(scope, receive, send)
        else:
            words = {"error": {"message": "This page is for its own machine alone."}}
            await JSONResponse(words, 403)(scope, receive, send)


class _Page:
    def __init__(
        self, snapshot: Callable[[], Snapshot], control: Control, views: LiveViews
    ) -> None:
        self._snapshot = snapshot
        self._control = control
        self._views = views
        self._document = files("quire_local.up").joinpath("document/index.html").read_bytes()
        self._headers = _headers(self._document)

    def routes(self) -> Starlette:
        """What can be asked for."""
        answers = {
            "/": self._show,
            "/snapshot": self._tell,
            "/events": self._stream,
            "/fleet": self._pass_on,
            "/metrics": self._pass_on,
        }
        return Starlette(routes=[Route(path, answer) for path, answer in answers.items()])

    async def _show(self, _: Request) -> Response:
        return Response(self._document, headers=self._headers)

    async def _tell(self, _: Request) -> Response:
        content = msgspec.json.encode(self._snapshot())
        return Response(content, media_type="application/json", headers=_NOT_STORED)

    async def _pass_on(self, request: Request) -> Response:
        """The gateway's own account, as its management port has it: for `quire top`."""
        answer = await self._control.ask_gateway(request.url.path)
        if answer is None:
            words = {"error": {"message": "The gateway does not answer: it starts, or ends."}}
            return JSONResponse(words, 503)
        kind = answer.headers["content-type"]
        return Response(answer.content, answer.status_code, _NOT_STORED, kind)

    async def _stream(self, _: Request) -> Response:
        events = self._events()
        return StreamingResponse(events, media_type="text/event-stream", headers=_NOT_STORED)

    async def _events(self) -> AsyncIterator[str]:
        """What changes, until the reader leaves; a slow one misses what is between."""
        sent: dict[str, str] = {}
        num_quiet = 0
        with self._views.watch():
            while True:
                self._views.follow([one for one in self._control.engines if one.is_ready])
                news = self._news(sent)
                num_quiet = 0 if news else num_quiet + 1
                if num_quiet >= _HEARTBEAT_PERIODS:
                    news, num_quiet = "event: beat\ndata: 0\n\n", 0
                if news:
                    yield news
                await asyncio.sleep(_PERIOD_SECONDS)

    def _news(self, sent: dict[str, str]) -> str:
        """Events of what is not as it was sent; it counts as sent then."""
        views = {f"engine {name}": view for name, view in self._views.newest.items()}
        for gone in sent.keys() - views.keys() - {"fleet"}:
            del sent[gone]
        now = {"fleet": msgspec.json.encode(self._snapshot()).decode()} | views
        news = {name: text for name, text in now.items() if sent.get(name) != text}
        sent.update(news)
        return "".join(_event(name, text) for name, text in news.items())


def _event(name: str, text: str) -> str:
    kind, _, engine = name.partition(" ")
    data = f'{{"name":"{engine}","live":{text}}}' if engine else text
    return f"event: {kind}\ndata: {data}\n\n"


def _headers(document: bytes) -> dict[str, str]:
    """What holds the browser to this document: its own script and style, and this server."""
    digests: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for kind, text in _INLINE.findall(document):
        coded = base64.b64encode(hashlib.sha256(text).digest()).decode()
        digests[kind].append(f"'sha256-{coded}'")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        f" connect-src 'self'; img-src data:; script-src {' '.join(digests[b'script'])};"
        f" style-src {' '.join(digests[b'style'])}; require-trusted-types-for 'script'"
    )
    return {
        "content-type": "text/html; charset=utf-8",
        "cache-control": "no-cache",
        "content-security-policy": policy,
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
