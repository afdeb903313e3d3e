"""`GET /`: a page that shows the engine at work, and its files under `/page/`.

The files are read once. They come from this server alone and load nothing from elsewhere; the
content security policy holds the browser to that.
"""

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from quire_engine.server.errors import ApiError
from quire_engine.server.service import Service

_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'",
    "base-uri 'none'",
    "connect-src 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "img-src 'self'",
    "script-src 'self'",
    "style-src 'self'",
    "require-trusted-types-for 'script'",
)
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(_POLICY),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class _File(NamedTuple):
    body: bytes
    headers: dict[str, str]


def build(_: Service) -> APIRouter:
    """The page's routes; they need nothing of the engine, which may still be loading."""
    router = APIRouter(include_in_schema=False)
    page = _read_files()

    @router.get("/")
    async def get_page(http: Request) -> Response:
        return _answer(http, page["index.html"])

    @router.get("/page/{name}")
    async def get_file(http: Request, name: str) -> Response:
        if name not in page or name == "index.html":
            raise ApiError(404, f"The page has no file {name[:100]!r}.", code="not_found")
        return _answer(http, page[name])

    return router


def _read_files() -> dict[str, _File]:
    """Every file of the page by its name."""
    folder = files("quire_engine.server").joinpath("page")
    return {
        item.name: _make_file(item.name, item.read_bytes())
        for item in folder.iterdir()
        if item.name.rpartition(".")[2] in _MEDIA_TYPES
    }


def _make_file(name: str, body: bytes) -> _File:
    digest = hashlib.sha256(body).hexdigest()[:32]
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return _File(body, {**_HEADERS, "content-type": media_type, "etag": f'"{digest}"'})


def _answer(http: Request, file: _File) -> Response:
    if http.headers.get("if-none-match") == file.headers["etag"]:
        return Response(status_code=304, headers=file.headers)
    return Response(file.body, headers=file.headers)
