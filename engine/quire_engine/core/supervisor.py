"""Starts core processes, notices at once when one dies, and starts the next."""

import asyncio
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from quire_engine.config import EngineConfig
from quire_engine.core.channel import CoreChannel
from quire_engine.core.launch import CoreLaunch, encode_launch
from quire_engine.core.private_directory import PrivateDirectory
from quire_engine.protocol.messages import FromCore, Shutdown

_log = logging.getLogger(__name__)

_MAX_BACKOFF_SECONDS = 60.0
_STABLE_SECONDS = 60.0
"""A core that lived this long starts the backoff anew."""
_SHUTDOWN_SECONDS = 5.0
"""A core that was told to shut down is killed after this."""


class Supervisor:
    """Keeps one core process running; every process has sockets of its own.

    `on_message` gets everything the core says, `on_exit` is called with the exit status of every
    process that was not asked to end, and answers whether another one is to be started.
    `on_start` is told of every process, before it has loaded anything.
    """

    def __init__(
        self,
        config: EngineConfig,
        model_path: Path | None,
        client_id: str,
        *,
        on_message: Callable[[FromCore], None],
        on_exit: Callable[[int], bool],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._model_path = model_path
        self._client_id = client_id
        self._on_message = on_message
        self._on_exit = on_exit
        self._on_start = on_start
        self._directory = PrivateDirectory()
        self._num_starts = 0
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.channel: CoreChannel | None = None

    @property
    def address(self) -> str:
        """What the names of the newest process's sockets begin with."""
        return f"ipc://{self._directory.path}/{self._num_starts}"

    async def start(self) -> None:
        """Start the first core process and watch over it."""
        process = await self._spawn()
        self._task = asyncio.create_task(self._watch(process), name="core-supervisor")

    def kill(self) -> None:
        """End the core process at once, even a stopped one; another is started in its place."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """End the core after its current step, and do not start another."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.channel is not None:
            self.channel.send(Shutdown())
        if self._process is not None:
            await _end(self._process)
        if self.channel is not None:
            self.channel.close()
        self._directory.close()

    async def _watch(self, process: Process) -> None:
        backoff = self._config.server.core_restart_backoff_seconds
        while True:
            started_at = time.monotonic()
            status = await process.wait()
            if self.channel is not None:
                self.channel.close()
                self.channel = None
            if not self._on_exit(status):
                return
            if time.monotonic() - started_at > _STABLE_SECONDS:
                backoff = self._config.server.core_restart_backoff_seconds
            _log.error(
                "the core process ended (status %d); starting another in %g s", status, backoff
            )
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _MAX_BACKOFF_SECONDS)
            process = await self._spawn_at_last()

    async def _spawn_at_last(self) -> Process:
        """Start a process, trying again while the machine has no room for one."""
        while True:
            try:
                return await self._spawn()
            except OSError:
                _log.exception("the core process cannot be started; trying again")
                await asyncio.sleep(_MAX_BACKOFF_SECONDS)

    async def _spawn(self) -> Process:
        self._num_starts += 1
        address = self.address
        launch = CoreLaunch(
            config=self._config,
            model_path=None if self._model_path is None else str(self._model_path),
            input_address=input_address(address),
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "quire_engine.core", stdin=PIPE
        )
        self._process = process
        self.channel = CoreChannel(
            self._client_id, input_address(address), f"{address}-out", self._on_message
        )
        if process.stdin is not None:
            process.stdin.write(encode_launch(launch))  # and it stays open: see launch.py
        self._on_start()
        return process


def input_address(address: str) -> str:
    """Where a core process with this address takes messages."""
    return f"{address}-in"


async def _end(process: Process) -> None:
    """Wait for a process that was told to end; kill it when it does not."""
    try:
        await asyncio.wait_for(process.wait(), _SHUTDOWN_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
