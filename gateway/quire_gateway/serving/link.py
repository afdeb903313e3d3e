"""What leads to one engine, and a request's way there."""

from dataclasses import dataclass
from math import inf

from quire_engine.protocol.internal_token import internal_token
from quire_gateway.http.headers import Headers, write_fields
from quire_gateway.http.pool import ConnectionPool
from quire_gateway.routing.document import RoutingDocument
from quire_gateway.serving.relay import Relay


class Link:
    """Connections to one engine.

    Parameters
    ----------
    headers
        Of every request: the engine's name and who asks.
    """

    def __init__(self, address: str, headers: Headers) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.pool = ConnectionPool(host.strip("[]"), int(port))
        self.headers = headers
        self.fields = write_fields(headers)
        """As they are written."""
        self.relays: set[Relay] = set()
        """Answers that are on their way."""

    def end_answers(self, reason: str, *, is_nobodys_fault: bool) -> None:
        """Break off all answers that are on their way."""
        for relay in list(self.relays):
            relay.on_failure(reason, was_reused=is_nobodys_fault)


@dataclass(slots=True)
class Way:
    """A request may go there now."""

    link: Link
    gateway: bytes
    """Under which the engine reports the counter."""
    counter: int
    holds_room: bool
    """Whether the engine is to let it wait, and hold room for it."""
    first_byte_seconds: float = inf
    """An engine that has not begun to answer by then is believed to hang."""
    is_unpromised: bool = False
    """Whether nothing is promised of it but what it asked for itself: it waited for an engine."""


def link_headers(root_secret: bytes | None, document: RoutingDocument, address: str) -> Headers:
    """Return what an engine is told with every request.

    Parameters
    ----------
    root_secret
        What internal tokens are made of; None sends none, for engines on this machine.
    """
    headers: Headers = [(b"host", address.encode())]
    if root_secret is not None:
        token = internal_token(root_secret, document.namespace, document.name, document.token_epoch)
        headers.append((b"authorization", b"Bearer " + token.encode()))
    return headers
