"""A decider or a worker as a process: `python -m quire_gateway.workers.child PLAN`.

The supervisor starts it, and gives it sockets and memory that outlive it. A socket
to the supervisor says that it lives, and once that it is ready. When the other end is gone, so is
the supervisor, and this process ends, too. On Linux the kernel kills it then, which also covers one
that hangs: it would keep its part of the clients' port.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import uvloop

from quire_engine.logs import configure
from quire_engine.parent import die_with_parent
from quire_gateway.errors import GatewayError
from quire_gateway.files import path_of
from quire_gateway.settings import GatewaySettings

Role = Literal["decider", "worker"]

BEAT_SECONDS = 0.25
BEAT, READY, LEAVING = b".", b"r", b"l"
REPLACED = b"d"
"""To a worker that leaves: another one takes its connections."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told; numbers are those of open files."""

    role: Role
    number: int
    """Of a worker, from 0."""
    is_again: bool
    """Whether one was there before it."""
    settings: GatewaySettings
    tether: int
    supervisor: int
    """Its process id."""
    court_address: str
    """Of the unix socket that workers reach the decider at, without its leading zero."""
    court: int = -1
    """That socket, listening; the decider's."""
    routing_board: int
    loads_board: int
    certificate: int = -1
    """A file with the last certificate that was good, and its key. The decider shows it to nobody,
    and tells until when it is valid."""
    sockets: tuple[int, ...]
    """Of clients, for a worker; of the management port, for the decider."""

    @property
    def kept_certificate(self) -> Path | None:
        """Where this process reads that file."""
        return path_of(self.certificate) if self.certificate >= 0 else None

    def open_sockets(self) -> list[socket.socket]:
        """Take them over."""
        return [socket.socket(fileno=os.dup(number)) for number in self.sockets]


class Tether:
    """The socket to the supervisor.

    Parameters
    ----------
    on_cut
        Called when the supervisor is gone.
    on_replaced
        Called when another process does this one's work.
    """

    def __init__(
        self,
        descriptor: int,
        on_cut: Callable[[], None],
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._on_cut = on_cut
        self._on_replaced = on_replaced
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)
        self._beat()

    def tell_ready(self) -> None:
        """Its work can be done now."""
        self._send(READY)

    def tell_leaving(self) -> None:
        """It was told to end."""
        self._send(LEAVING)

    def _beat(self) -> None:
        self._send(BEAT)
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _send(self, word: bytes) -> None:
        with suppress(OSError):  # full while the supervisor is stopped, or gone
            self._socket.send(word)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            words = self._receive()
            if not words:
                self._loop.remove_reader(self._socket)
                self._on_cut()
            if REPLACED in words:
                self._on_replaced()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(64)
        except ConnectionError:
            return b""


def main() -> int:
    """Run the child; the exit status is returned."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    die_with_parent(plan.supervisor)
    configure(plan.settings.observability, "gateway")
    # until the event loop takes them: whoever is told to end before that just ends
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(plan))
    except GatewayError as error:
        print(f"quire-gateway: error: {error}", file=sys.stderr)
        return 2


async def _run(plan: Plan) -> int:
    if plan.role == "decider":
        from quire_gateway.workers.decider import decide

        return await decide(plan)
    from quire_gateway.workers.worker import work

    return await work(plan)


if __name__ == "__main__":
    sys.exit(main())
