"""A port that connections come to: its sockets, its bounds, and what serves it."""

import asyncio
import socket
from collections.abc import Sequence

from quire_gateway.errors import SettingsError
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.deadlines import Deadlines
from quire_gateway.http.request import Application
from quire_gateway.http.tls import HANDSHAKE_SECONDS, Certificate

_BACKLOG = 2048


class SharedBounds:
    """Bounds of the connections of one port, and what of them is used."""

    def __init__(
        self,
        *,
        max_connections: int,
        max_body_bytes: int,
        max_total_body_bytes: int,
        reader_stall_seconds: float,
    ) -> None:
        self.max_connections = max_connections
        self.max_body_bytes = max_body_bytes
        self.max_total_body_bytes = max_total_body_bytes
        self.reader_stall_seconds = reader_stall_seconds
        self.num_body_bytes = 0
        self.connections: set[ClientConnection] = set()
        self.deadlines = Deadlines()
        self.is_leaving = self.is_closing = False


def open_sockets(host: str, port: int, *, is_shared: bool = False) -> list[socket.socket]:
    """Take a port, at all addresses that a host's name stands for; nobody listens yet.

    Parameters
    ----------
    port
        0 takes a free one.
    is_shared
        Whether it may be taken several times: the system spreads connections evenly over those
        that listen.

    Raises
    ------
    SettingsError
        It cannot be had.
    """
    opened: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, protocol)
            opened.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if not port and len(opened) > 1:  # one free port at all addresses
                address = (address[0], opened[0].getsockname()[1], *address[2:])
            one.bind(address)
    except OSError as error:
        for one in opened:
            one.close()
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another by --host and"
            " --port, or by --management-host and --management-port"
        ) from error
    return opened


class Port:
    """Serves these sockets until it is closed."""

    def __init__(self, servers: Sequence[asyncio.Server]) -> None:
        self._servers = servers

    @classmethod
    async def open(
        cls,
        application: Application,
        bounds: SharedBounds,
        sockets: Sequence[socket.socket],
        certificate: Certificate | None = None,
    ) -> "Port":
        """Listen."""
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(
                lambda: ClientConnection(application, bounds),
                sock=one,
                backlog=_BACKLOG,
                ssl=None if certificate is None else certificate.context,
                ssl_handshake_timeout=None if certificate is None else HANDSHAKE_SECONDS,
            )
            for one in sockets
        ]
        return cls(servers)

    def close(self) -> None:
        """Take no more connections."""
        for server in self._servers:
            server.close()


def url_of(sockets: Sequence[socket.socket], *, has_tls: bool = False) -> str:
    """Return where these are reached."""
    host, port = sockets[0].getsockname()[:2]
    scheme = "https" if has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
