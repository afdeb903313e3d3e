"""A client's request, and what its connection shares with others."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from quire_gateway.http.headers import Headers

if TYPE_CHECKING:
    from quire_gateway.http.client_connection import ClientConnection


@dataclass(slots=True)
class Request:
    """One request."""

    method: bytes
    target: bytes
    """Path and query, as they came."""
    headers: Headers
    is_http_1_0: bool
    keeps_alive: bool
    body: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    num_body_bytes: int = 0
    """Counted among those of all connections, until the answer is complete."""


class Bounds(Protocol):
    """What all connections share."""

    max_body_bytes: int
    max_total_body_bytes: int
    reader_stall_seconds: float
    num_body_bytes: int
    """Of all requests that are held now."""
    max_connections: int
    connections: "set[ClientConnection]"
    is_closing: bool
    """No further request is taken on a connection after the one that is answered."""


class Upstream(Protocol):
    """Where an answer comes from."""

    def pause_reading(self) -> None:
        """Bring no more of it for now."""

    def resume_reading(self) -> None:
        """Go on."""
