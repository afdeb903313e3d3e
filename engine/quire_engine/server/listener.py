"""The listening socket, taken before anything slow happens."""

import errno
import socket

from quire_engine.errors import ConfigError

_MAX_UNSENT_BYTES = 128 << 10
"""Of an answer, the system keeps no more than this beyond what is under way to the client."""


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen on an address; port 0 takes a free one.

    Raises
    ------
    ConfigError
        The address is busy, not of this machine, or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on host {host}: {error.strerror}; set --host to an address of this"
            " machine, or 0.0.0.0 for all"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # connections inherit it; without, the system keeps megabytes for who reads nothing
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ConfigError(_explain(error, host, port)) from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the server."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use by another program; stop that, or choose another"
            " with --port (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; choose one above 1023"
    return f"cannot listen on {host} port {port}: {error.strerror}; choose another --host or --port"
