"""Starting real server processes for tests, and asking them how they are."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import httpx
import msgspec

from quire_engine.protocol.state import EngineState

SIMULATED = ("--simulate", "h100", "--model-shape", "llama3-8b")
MODEL = "llama3-8b"
PROGRAM = ("-m", "quire_engine")
_READY_LINE = re.compile(r"ready: \S+ on (https?://[^/]+)")
PATIENCE_SECONDS = 300.0
"""For what comes within seconds, but on a machine that others keep busy."""
_START_SECONDS = 300.0


class RunningServer:
    """`python -m quire_engine` with these flags on a free port, ready when the block begins.

    Parameters
    ----------
    stderr
        File for its standard error; None leaves it to the test run's.
    program
        Another Python program to run with these flags.
    """

    def __init__(
        self,
        *flags: str,
        env: dict[str, str] | None = None,
        stderr: Path | None = None,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        with stderr.open("w") if stderr else nullcontext() as file:
            self.process = start(*flags, env=env, stderr=file, program=program)
        self.output: list[str] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.url = wait_for_line(self.process, _READY_LINE, self.output)[1]
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End the process at once; its core ends with it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def state(self) -> EngineState:
        """The engine's own account."""
        return msgspec.json.decode(self.get("/state").content, type=EngineState)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """One GET over a connection of its own."""
        return httpx.get(self.url + path, timeout=60, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """One POST of a JSON body over a connection of its own."""
        return httpx.post(self.url + path, json=body, timeout=60, **options)

    def is_ready(self) -> bool:
        """Whether /readyz says so."""
        return self.get("/readyz").status_code == 200

    def core_pid(self) -> int:
        """The process id of the core that runs now."""
        (pid,) = children_of(self.process.pid, "quire_engine.core")
        return pid

    def wait_until_idle(self) -> EngineState:
        """Wait until no request holds a block."""
        wait_until(lambda: self.state().is_ready and self.state().blocks.held == 0)
        state = self.state()
        assert state.blocks.free == state.blocks.total
        assert state.sequences.running == state.sequences.waiting == 0
        return state

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)


_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_KEPT = ("QUIRE_CACHE",)
"""Of the variables of settings that a test run has, those that its servers have, too."""


def start(
    *flags: str,
    env: dict[str, str] | None = None,
    stderr: int | IO[str] | None = None,
    program: tuple[str, ...] = PROGRAM,
) -> subprocess.Popen[str]:
    """Start a server on a free port, without waiting for it."""
    return subprocess.Popen(
        [sys.executable, *program, "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=_inherited() | (env or {}),
    )


def _inherited() -> dict[str, str]:
    """What servers have of this run's environment.

    Not the settings of whoever runs the tests, nor those of the tests themselves, which a server
    refuses as misspelt. Compiled modules are kept, or every server would compile them all again.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name != _NO_BYTECODE and (name in _KEPT or not name.startswith("QUIRE_"))
    }


def wait_for_line(
    process: subprocess.Popen[str], pattern: re.Pattern[str], output: list[str]
) -> re.Match[str]:
    """Read a process's standard output up to a line with `pattern`."""
    assert process.stdout is not None
    # no selector: it does not see lines that came together with one that was read
    timer = threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    try:
        for line in iter(process.stdout.readline, ""):
            output.append(line)
            if match := pattern.search(line):
                return match
    finally:
        timer.cancel()
    raise AssertionError(f"no line with {pattern.pattern!r} in {''.join(output)!r}")


def wait_until(
    condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS, pause_seconds: float = 0.01
) -> float:
    """Wait until `condition` holds; returns how long it took."""
    started_at = time.monotonic()
    while not condition():
        passed = time.monotonic() - started_at
        assert passed < seconds, f"not so within {seconds} seconds"
        time.sleep(pause_seconds)
    return time.monotonic() - started_at


async def wait_until_async(
    condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until `condition` holds, while other tasks of the test go on."""
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"not so within {seconds} seconds"
        await asyncio.sleep(0.01)


def children_of(pid: int, module: str) -> list[int]:
    """Process ids of a process's children that run this module."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    wanted = f"\0{module}\0".encode()
    return [int(child) for child in children if wanted in command_line(child)]


def command_line(pid: int | str) -> bytes:
    """A process's words, with a zero byte after each; empty for one that has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False
    return status not in "ZX"
