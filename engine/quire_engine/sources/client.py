"""Fetches an index's pages and wheels."""

from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

import msgspec

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.addresses import redacted
from quire_engine.sources.index import (
    ACCEPT,
    IndexSettings,
    Wheel,
    normalized,
    parse_html,
    parse_json,
)
from quire_engine.sources.part import Part
from quire_engine.sources.transfer import Advice, Remote, Transfer

_MAX_PAGE_BYTES = 64 << 20
_ADVICE = Advice(
    network="check the network and PIP_INDEX_URL, or give the path of a model file",
    credentials="check user and password in PIP_INDEX_URL",
    missing="check the package's name and PIP_INDEX_URL",
    other="check PIP_INDEX_URL",
)


class IndexClient:
    """Talks to one package index; use it in a `with` block."""

    def __init__(self, settings: IndexSettings) -> None:
        self._settings = settings
        self._transfer = Transfer(_ADVICE, certificates=settings.certificates)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._transfer.__exit__(kind, error, traceback)

    def wheels(self, package: str) -> list[Wheel]:
        """All wheels of a package.

        Raises
        ------
        SourceError
            The index cannot be reached, does not have the package, or answers nonsense.
        """
        url = f"{self._settings.url}/{normalized(package)}/"
        return self._transfer.repeat(url, lambda: self._page(url))

    def _page(self, url: str) -> list[Wheel]:
        with self._transfer.get(url, {"accept": ACCEPT}) as response:
            self._transfer.require_success(response)
            body = b""
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MAX_PAGE_BYTES:
                    raise SourceError(f"the index's page {redacted(url)} is too large: not read")
            is_json = "json" in response.headers.get("content-type", "")
            page_url = str(response.url)
        try:
            return parse_json(body, page_url) if is_json else parse_html(body, page_url)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(
                f"{redacted(url)} is not a page of a package index: check PIP_INDEX_URL"
            ) from error

    def download(self, wheel: Wheel, part: Path, progress: Progress) -> None:
        """Bring a wheel to the file `part`; see `Transfer.download`."""
        remote = Remote(
            url=wheel.url,
            name=wheel.filename,
            size=wheel.size,
            is_verified=True,
            auth=_credentials(self._settings.url, wheel.url),
        )
        self._transfer.download(remote, Part(part), progress)


def _credentials(index_url: str, url: str) -> tuple[str, str] | None:
    """The index's user and password, for files on the index's own host only."""
    index, file = urlsplit(index_url), urlsplit(url)
    if index.username is None or (index.scheme, index.hostname, index.port) != (
        file.scheme,
        file.hostname,
        file.port,
    ):
        return None
    return unquote(index.username), unquote(index.password or "")
