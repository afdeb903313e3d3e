"""A client's request, what answers it, and what its connection shares with others."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from quire_engine.protocol.request_framing import find_fault, in_origin_form, is_host
from quire_gateway.errors import ApiError
from quire_gateway.http.headers import Headers

if TYPE_CHECKING:
    from quire_gateway.http.client_connection import ClientConnection
    from quire_gateway.http.deadlines import Deadlines


class Request:
    """One request.

    Parameters
    ----------
    target
        Path and query, as they came; or a URL: see `take_origin_form`.
    """

    __slots__ = (
        "body",
        "fields",
        "headers",
        "is_http_1_0",
        "keeps_alive",
        "method",
        "num_body_bytes",
        "pieces",
        "target",
    )

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        is_http_1_0: bool,
        keeps_alive: bool,
        body: bytes = b"",
    ) -> None:
        self.method, self.target = method, target
        self.headers = headers
        self.fields = dict(headers)
        """Its headers by name; of those that come several times, the last."""
        self.is_http_1_0, self.keeps_alive = is_http_1_0, keeps_alive
        self.body = body
        self.pieces: list[bytes] = []
        self.num_body_bytes = 0
        """Counted among those of all connections, until the answer is complete."""

    def find_fault(self) -> ApiError | None:
        """Return why this is no request to be answered, if it is none; see `request_framing`."""
        fields = self.fields
        if (
            len(fields) == len(self.headers)  # nothing comes twice
            and b"transfer-encoding" not in fields
            and is_host(fields.get(b"host", b" "))
        ):
            return None
        fault = find_fault(self.headers, is_http_1_0=self.is_http_1_0)
        return None if fault is None else ApiError(*fault, reason="invalid_http")

    def take_origin_form(self) -> None:
        """Have path and query alone, where the target names a host; that takes Host's place."""
        path = in_origin_form(self.target, self.headers)
        if path is not None:
            self.target, self.fields = path, dict(self.headers)

    def find(self, name: bytes) -> bytes | None:
        """Return the only value of a header; None if there is none, or several."""
        value = self.fields.get(name)
        if value is None or (len(self.fields) != len(self.headers) and self.has_several(name)):
            return None
        return value.strip()

    def has_several(self, name: bytes) -> bool:
        """Whether a header comes more than once."""
        return sum(key == name for key, _ in self.headers) > 1


class Answering(Protocol):
    """A request that is being answered, and is not yet."""

    def cancel(self) -> None:
        """The client has left."""

    def on_due(self) -> None:
        """The deadline that was set for the answer has come."""


Application = Callable[["ClientConnection", Request], Answering | None]
"""Answers a request, at once (None) or later; in the end it calls `ClientConnection.end`."""


class Bounds(Protocol):
    """What all connections share."""

    max_body_bytes: int
    max_total_body_bytes: int
    reader_stall_seconds: float
    num_body_bytes: int
    """Of all requests that are held now."""
    max_connections: int
    connections: "set[ClientConnection]"
    deadlines: "Deadlines"
    is_leaving: bool
    """Answers say that their connection ends, so that who sends more does it elsewhere."""
    is_closing: bool
    """No further request is taken on a connection after the one that is answered."""


class Upstream(Protocol):
    """Where an answer comes from."""

    def pause_reading(self) -> None:
        """Bring no more of it for now."""

    def resume_reading(self) -> None:
        """Go on."""
