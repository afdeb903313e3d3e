"""Runs the server in this process, and a client of it beside, in a thread of its own.

The process itself is the server: signals, exit status and the core's end are those of
`quire serve`, and no server is left behind however this process ends.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread

import httpx

from quire_engine.config import EngineConfig

_POLL_SECONDS = 0.05


class Companion(Thread):
    """Waits until the server at `url` is ready, then runs `client(url)` once."""

    def __init__(self, url: str, client: Callable[[str], None]) -> None:
        super().__init__(name="companion", daemon=True)
        self.error: Exception | None = None
        """What the client raised."""
        self.is_done = False
        """Whether the client has returned, or raised."""
        self._url = url
        self._client = client
        self._is_over = Event()

    def run(self) -> None:
        """Wait, then run the client."""
        if not self._wait_until_ready():
            return
        try:
            self._client(self._url)
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error
        finally:
            self.is_done = True

    def stop(self) -> None:
        """Stop waiting: the server has ended."""
        self._is_over.set()
        self.join(timeout=5.0)

    def _wait_until_ready(self) -> bool:
        with httpx.Client(base_url=self._url, timeout=5.0) as http:
            while not self._is_over.wait(_POLL_SECONDS):
                try:
                    if http.get("/readyz").is_success:
                        return True
                except httpx.TransportError:
                    continue
        return False


def serve_beside(config: EngineConfig, client: Callable[[str], None]) -> tuple[int, Companion]:
    """Serve until a signal, with `client` beside; the exit status and what became of the client.

    `config` has a port: see `with_free_port`.
    """
    from quire_engine.server.run import run

    companion = Companion(url_of(config), client)
    companion.start()
    try:
        return run(config), companion
    finally:
        companion.stop()


def with_free_port(config: EngineConfig) -> EngineConfig:
    """The configuration with a port that is free now in place of port 0."""
    if config.server.port != 0:
        return config
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return replace(config, server=replace(config.server, port=port))


def url_of(config: EngineConfig) -> str:
    """Where this process reaches its own server."""
    host = config.server.host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{config.server.port}"
