"""One child process of the supervisor: started, listened to, killed when it hangs."""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import msgspec

from quire_gateway.workers.child import LEAVING, READY, REPLACED, Plan

_CHECKS = 10
"""How often it is looked whether it is silent, in the time that it may be."""
_START_SECONDS = 60.0
"""A child that starts may say nothing for so long."""

_log = logging.getLogger(__name__)


class Child:
    """One process, in a group of its own: Ctrl-C is for the supervisor, which tells it.

    Parameters
    ----------
    plan
        Without its tether.
    silence_seconds
        One that was silent for so long hangs, and is killed.
    """

    def __init__(self, plan: Plan, *, silence_seconds: float) -> None:
        self.plan = plan
        self._silence_seconds = silence_seconds
        own, its = socket.socketpair()
        plan = msgspec.structs.replace(plan, tether=its.fileno())
        files = (
            *(*plan.sockets, plan.routing_board, plan.loads_board),
            *(its.fileno(), plan.court, plan.certificate),
        )
        self._process = subprocess.Popen(  # noqa: S603 - this program itself
            (
                sys.executable,
                "-m",
                "quire_gateway.workers.child",
                msgspec.json.encode(plan).decode(),
            ),
            pass_fds=[one for one in files if one >= 0],
            process_group=0,
        )
        its.close()
        own.setblocking(False)
        self._socket = own
        self._num_beats = 0
        self._is_ready, self._has_ended = asyncio.Event(), asyncio.Event()
        self._leaves_or_ended = asyncio.Event()
        self.is_leaving = False
        """Whether it was told to end, by whomever."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(own, self._read)
        self._watch = self._loop.create_task(self._look())

    @property
    def name(self) -> str:
        """For the log."""
        number = f" {self.plan.number}" if self.plan.role == "worker" else ""
        return f"{self.plan.role}{number} (process {self._process.pid})"

    @property
    def was_ready(self) -> bool:
        """Whether its work could ever be done."""
        return self._is_ready.is_set()

    async def until_leaving(self) -> None:
        """Wait until it leaves, or has ended."""
        await self._leaves_or_ended.wait()

    def tell_replaced(self) -> None:
        """Another one does its work: it takes no more connections."""
        with suppress(OSError):  # it has just ended
            self._socket.send(REPLACED)

    async def until_ready(self) -> bool:
        """Wait until it is ready; the answer is whether it is."""
        ready = self._loop.create_task(self._is_ready.wait())
        ended = self._loop.create_task(self._has_ended.wait())
        await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        for task in (ready, ended):
            task.cancel()
        return self._is_ready.is_set()

    async def wait(self) -> int:
        """Wait for its end; the exit status is returned, below 0 after a signal."""
        await self._has_ended.wait()
        self._watch.cancel()
        return await asyncio.to_thread(self._process.wait)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)

    def _read(self) -> None:
        try:
            words = self._socket.recv(4096)
        except BlockingIOError:
            return
        except ConnectionError:
            words = b""
        if READY in words:
            self._is_ready.set()
        if LEAVING in words:
            self.is_leaving = True
            self._leaves_or_ended.set()
        self._num_beats += len(words)
        if not words:  # only its end closes the other end
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._has_ended.set()
            self._leaves_or_ended.set()

    async def _look(self) -> None:
        """Kill it when it hangs.

        Looks are counted, not seconds: who was stopped itself takes nobody for silent.
        """
        num_beats, num_empty = 0, 0
        while not self._has_ended.is_set():
            seconds = self._silence_seconds if self._is_ready.is_set() else _START_SECONDS
            await asyncio.sleep(seconds / _CHECKS)
            num_empty = 0 if self._num_beats > num_beats else num_empty + 1
            num_beats = self._num_beats
            if num_empty >= _CHECKS:
                _log.error("%s hangs: it is killed, and started again", self.name)
                self.kill()
                return
