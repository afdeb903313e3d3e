"""One process: started, its output kept and shown, ended, and never outliving us."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KEPT_LINES = 20
"""Last words that a condition may quote."""
_MAX_LINE_BYTES = 64 << 10
_OWN = "QUIRE_"
_SHARED_VARIABLES = frozenset(("QUIRE_CACHE",))
"""Settings come from the resource: of quire's variables only the folder of models is passed on."""

OnLine = Callable[[str], None]


class Tether:
    """A pipe whose end tells all children that this process is gone."""

    def __init__(self) -> None:
        self.fd, self._held = os.pipe()

    def close(self) -> None:
        """Let go: children that are left are killed."""
        os.close(self._held)
        os.close(self.fd)


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is run."""

    module: str
    flags: Sequence[str]
    variables: Mapping[str, str]


class ChildProcess:
    """From its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, program: Program, tether: Tether, log: Path, on_line: OnLine
    ) -> "ChildProcess":
        """Start it in a session of its own: a terminal's Ctrl-C is for its parent alone."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "quire_local.up.tether",
            str(tether.fd),
            program.module,
            *program.flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            pass_fds=(tether.fd,),
            start_new_session=True,
            env=_environment() | dict(program.variables),
            limit=_MAX_LINE_BYTES,
        )
        child = cls(process)
        child._reading = asyncio.create_task(child._read(log, on_line))
        return child

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def ended_how(self) -> str:
        """How it ended, in words: with which status, or by which signal."""
        status = self._process.returncode or 0
        if status >= 0:
            return f"ended with status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        why = "; not by quire, so maybe for want of memory" if name == "SIGKILL" else ""
        return f"ended by {name}{why}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it is still there."""
        with suppress(ProcessLookupError):
            if self.is_running:
                self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for its end and the last of its output; the status is as shells have it."""
        status = await self._process.wait()
        if self._reading is not None:
            with suppress(TimeoutError):  # a grandchild may hold the pipe for a moment
                async with asyncio.timeout(1.0):
                    await self._reading
        return status if status >= 0 else 128 - status

    async def _read(self, log: Path, on_line: OnLine) -> None:
        stream = self._process.stdout
        if stream is None:
            return
        with log.open("a", encoding="utf-8", buffering=1) as file:
            while True:
                try:
                    data = await stream.readuntil(b"\n")
                except asyncio.IncompleteReadError as error:
                    data = error.partial
                    if not data:
                        return
                except asyncio.LimitOverrunError as error:
                    data = await stream.readexactly(error.consumed)
                line = data.decode(errors="replace").rstrip("\r\n")
                file.write(line + "\n")
                self.last_lines.append(line)
                on_line(line)


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _SHARED_VARIABLES or not name.startswith(_OWN)
    } | {"PYTHONUNBUFFERED": "1"}
