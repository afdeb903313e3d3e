"""One worker as the server's process sees it: a process and a link to it."""

import asyncio
import logging
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence

from quire_engine.protocol.messages import Message
from quire_engine.workers.link import Link
from quire_engine.workers.messages import FromWorker

_MAX_UNREAD_BYTES = 8 << 20
"""A worker that has not read so much of what it was told hangs: that is minutes of news."""
_MAX_BEHIND_SECONDS = 30.0
"""Nor may any of it wait for so long, beyond what the socket holds, without a moment of none."""
_LEAVE_SECONDS = 10.0
"""A worker that was told to leave is killed after this."""
_log = logging.getLogger(__name__)


class Backlog:
    """What a worker was told and has not read."""

    def __init__(self) -> None:
        self._since: float | None = None

    def is_too_much(self, num_bytes: int, now: float) -> bool:
        """Whether so much tells that the worker hangs, or that there is some for so long."""
        if not num_bytes:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return num_bytes > _MAX_UNREAD_BYTES or now - self._since > _MAX_BEHIND_SECONDS


class WorkerProcess:
    """From its start to its end; belongs to one event loop."""

    def __init__(self, number: int, client_id: str, process: Process) -> None:
        self.number = number
        self.client_id = client_id
        self.is_loaded = False
        self.is_idle = False
        """Whether it takes no more requests and has answered all."""
        self.applied = 0
        """Number of the newest state that is in force there."""
        self._process = process
        self._link: Link[FromWorker] | None = None
        self._backlog = Backlog()

    @classmethod
    async def start(
        cls,
        number: int,
        client_id: str,
        *,
        fds: Sequence[int],
        on_message: "Callable[[WorkerProcess, FromWorker], None]",
    ) -> "WorkerProcess":
        """Start a process that has these files, too, under the same numbers."""
        own, other = socket.socketpair()
        with other:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "quire_engine.workers"),
                stdin=other.fileno(),
                pass_fds=tuple(fds),
            )
        worker = cls(number, client_id, process)
        link: Link[FromWorker] = Link(
            FromWorker, lambda message: on_message(worker, message), lambda: None
        )
        await link.open(own)
        worker._link = link
        return worker

    def send(self, message: Message) -> None:
        """Tell it something; one that has not listened for long is killed."""
        if self._link is None:
            return
        now = asyncio.get_running_loop().time()
        if self._backlog.is_too_much(self._link.num_unsent_bytes, now):
            _log.error("API worker %d does not listen; killing it", self.number)
            self.kill()
            return
        self._link.send(message)

    def kill(self) -> None:
        """End it at once."""
        if self._process.returncode is None:
            self._process.kill()

    async def wait(self) -> int:
        """Wait for its end; the exit status, negative for a signal, is returned."""
        status = await self._process.wait()
        if self._link is not None:
            self._link.close()
        return status

    async def leave(self) -> None:
        """Wait until it has gone as it was told to; kill it when it does not."""
        try:
            await asyncio.wait_for(self._process.wait(), _LEAVE_SECONDS)
        except TimeoutError:
            self.kill()
            await self._process.wait()
