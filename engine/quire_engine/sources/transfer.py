"""Fetches files over HTTP: tries again, goes on where it stopped, takes no more than was promised.

A download that breaks off is taken up again where it stopped, if the server can; otherwise it
starts anew. Refusals (404, 403) are not repeated; failures of the network and of the server are.
"""

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

import httpx

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.addresses import redacted
from quire_engine.sources.cache import require_space
from quire_engine.sources.part import Part

Result = TypeVar("Result")

BACKOFF_SECONDS = 0.5
"""Wait before the second attempt; it doubles with each one."""
_ATTEMPTS = 4
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class TransientError(Exception):
    """A server's answer that may be another one next time."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What errors tell people to check, for one kind of source."""

    network: str
    credentials: str
    missing: str
    other: str


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file to fetch."""

    url: str
    name: str
    """For people: what is being downloaded."""
    size: int | None = None
    """How large it is said to be; more is not taken."""
    max_bytes: int | None = None
    """How large it may be at most, whatever is said."""
    is_verified: bool
    """Whether a digest is checked afterwards: only then is a part trusted by its length alone."""
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: tuple[str, str] | None = None


class Transfer:
    """An HTTP client for one kind of source; use it in a `with` block."""

    def __init__(
        self, advice: Advice, *, certificates: str | None = None, requires_tls: bool = False
    ) -> None:
        self._advice = advice
        self._client = httpx.Client(
            verify=_tls(certificates),
            follow_redirects=True,
            timeout=httpx.Timeout(30.0, read=60.0),
            headers={"accept-encoding": "identity"},
            event_hooks={"request": [_require_tls] if requires_tls else []},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    @contextmanager
    def get(
        self, url: str, headers: Mapping[str, str], auth: tuple[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """One GET; its body is not read yet."""
        with self._client.stream("GET", url, headers=dict(headers), auth=auth) as response:
            yield response

    def repeat(self, url: str, action: Callable[[], Result]) -> Result:
        """Do what may fail by the network or the server's fault, up to four times.

        Raises
        ------
        SourceError
            It failed each time, or was refused.
        """
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
            try:
                return action()
            except (httpx.TransportError, TransientError) as error:
                reason = str(error) or type(error).__name__
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise SourceError(f"cannot fetch {redacted(url)}: {error}") from error
        raise SourceError(
            f"cannot fetch {redacted(url)} ({reason}; tried {_ATTEMPTS} times): "
            f"{self._advice.network}"
        )

    def require_success(self, response: httpx.Response) -> None:
        """Let only a whole answer through; the message of a refusal says what to check.

        Raises
        ------
        TransientError
            The server is in trouble, and may not be next time.
        SourceError
            The file is not there, or not for us.
        """
        status, url = response.status_code, redacted(str(response.url))
        if status in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            return
        if status in _TRANSIENT:
            raise TransientError(f"the server answered {status}")
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise SourceError(f"{url} answered {status}: {self._advice.credentials}")
        if status in (httpx.codes.NOT_FOUND, httpx.codes.GONE):
            raise SourceError(f"{url} does not exist ({status}): {self._advice.missing}")
        raise SourceError(f"{url} answered {status}, which is no file: {self._advice.other}")

    def download(self, remote: Remote, part: Part, progress: Progress) -> None:
        """Bring a file to `part`, going on where an earlier download stopped.

        Raises
        ------
        SourceError
            The file cannot be fetched; what arrived stays in `part` for another try.
        OSError
            `part` cannot be written.
        """
        self.repeat(remote.url, lambda: self._continue(remote, part, progress))

    def _continue(self, remote: Remote, part: Part, progress: Progress) -> None:
        start = part.length(trusts_length=remote.is_verified)
        if start and start == remote.size and remote.is_verified:
            return
        headers = {**remote.headers, **part.range_headers(start)}
        with self.get(remote.url, headers, remote.auth) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.remove()
                raise TransientError("the server has less than was fetched before")
            self.require_success(response)
            if not response.headers.get("content-range", "").startswith(f"bytes {start}-"):
                start = 0
            self._receive(response, remote, part, start, progress)

    def _receive(
        self, response: httpx.Response, remote: Remote, part: Part, start: int, progress: Progress
    ) -> None:
        promised = response.headers.get("content-length", "")
        total = start + int(promised) if promised.isdecimal() else remote.size
        _require_size(remote, total or start)
        require_space(part.path.parent, remote.name, (total or start) - start)
        with part.open(start, response.headers) as file:
            for piece in response.iter_bytes():
                start += file.write(piece)
                _require_size(remote, start)
                progress(f"downloading {remote.name}", min(start / (total or start), 1.0))


def _require_size(remote: Remote, size: int) -> None:
    if remote.size is not None and size > remote.size:
        raise SourceError(
            f"{redacted(remote.url)} is larger than the {remote.size} bytes it is said to have"
        )
    if remote.max_bytes is not None and size > remote.max_bytes:
        raise SourceError(
            f"{redacted(remote.url)} has {size} bytes or more, but max_download_bytes is "
            f"{remote.max_bytes}: raise it, or choose a smaller model"
        )


def _require_tls(request: httpx.Request) -> None:
    """Refuse to be redirected from https to http."""
    if request.url.scheme != "https":
        raise SourceError(
            f"{redacted(str(request.url))} is where the server redirects to, and it is not https: "
            "what arrives there could be anyone's; give the file's own https address"
        )


def _tls(certificates: str | None) -> ssl.SSLContext | bool:
    if certificates is None:
        return True
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        reason = error.strerror or error
        raise SourceError(
            f"cannot read the certificates in {certificates} ({reason}): check PIP_CERT or "
            "SSL_CERT_FILE"
        ) from error
