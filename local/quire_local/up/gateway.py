"""The gateway's process: started once, started again on its port when it ends."""

import asyncio
import json
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from quire_engine.errors import QuireError
from quire_local.up.engine import FIRST_PAUSE_SECONDS, Tools
from quire_local.up.folder import write_private
from quire_local.up.process import ChildProcess, Program
from quire_operator.reconciling.scaling_reports import SeenFleet

NAME = "gateway"
_LONGEST_PAUSE_SECONDS = 10.0
_DRAIN_SECONDS = 600
"""How long answers may take to end after Ctrl-C; a second Ctrl-C does not wait."""
_READY = re.compile(r"^ready: gateway on (http://\S+)/v1, management on (http://\S+)$")
_ROUTINE = re.compile(r"^\S+( \S+)? INFO ")
"""Lines of its log that say what the run has said already: they are in its file alone."""
_ERROR = "quire-gateway: error: "


class GatewayFailedError(QuireError):
    """The gateway could not start; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """Where clients come in."""

    host: str
    port: int


class GatewayProcess:
    """One of them; belongs to one event loop."""

    def __init__(self, entrance: Entrance, folder: Path, root_secret: bytes, tools: Tools) -> None:
        self._entrance = entrance
        self._routing = folder / "routing.json"
        self._secret = folder / "root-secret"
        self._tools = tools
        self._child: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked_to_end = asyncio.Event()
        self.url = ""
        """Of clients; empty until it was ready once."""
        self._management = ""
        self.failure = ""
        """Why it could not start at all."""
        write_private(self._secret, root_secret)

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests."""
        return bool(self._management)

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    def start(self) -> None:
        """Start it; it holds requests until engines are ready."""
        self._task = asyncio.create_task(self._live())

    def tell(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Give it other routing documents; it sees them by itself."""
        write_private(self._routing, json.dumps(documents))

    async def ask(self) -> SeenFleet | None:
        """What it sees; None while it does not answer."""
        if not self.is_ready:
            return None
        try:
            answer = await self._tools.http.get(f"{self._management}/fleet")
            return msgspec.json.decode(answer.raise_for_status().content, type=SeenFleet)
        except (httpx.HTTPError, msgspec.MsgspecError):
            return None

    async def tell_raw(self, path: str) -> httpx.Response | None:
        """What its management port answers; None while it does not."""
        if not self.is_ready:
            return None
        try:
            return await self._tools.http.get(f"{self._management}{path}")
        except httpx.HTTPError:
            return None

    async def drain(self) -> None:
        """Take no more requests, and wait until all answers have ended."""
        self._asked_to_end.set()
        if self._child is not None:
            # SIGTERM ends a process that still imports without a word, SIGINT with a traceback.
            self._child.send(signal.SIGINT if self.is_ready else signal.SIGTERM)
        if self._task is not None:
            await self._task

    def hurry(self) -> None:
        """End the answers that are left."""
        self._asked_to_end.set()
        if self._child is not None:
            self._child.send(signal.SIGINT)

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.send(signal.SIGKILL)

    async def _live(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._asked_to_end.is_set():
            status = await self._run_once()
            if self._asked_to_end.is_set():
                break
            self._management = ""
            words = "; ".join(self._child.last_lines) if self._child is not None else ""
            how = self._child.ended_how if self._child is not None else f"ended with {status}"
            if not self.url:
                self.failure = _in_our_flags(words.rpartition(_ERROR)[2]) or f"it {how}"
                self._tools.on_change()
                break
            self._tools.on_news(NAME, f"{how}, and is started again")
            self._tools.on_change()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked_to_end.wait()
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _run_once(self) -> int:
        flags = {
            "routing": self._routing,
            "root-secret-file": self._secret,
            "host": self._entrance.host,
            "port": self.url.rpartition(":")[2] or self._entrance.port,
            "proxied-hosts": "*",  # an editor or a tunnel that forwards the port
            "management-port": 0,
            "drain-seconds": _DRAIN_SECONDS,
            "log-format": "text",
        }
        program = Program(
            module="quire_gateway",
            flags=[f"--{name}={value}" for name, value in flags.items()],
            variables={},
        )
        log = self._tools.logs / f"{NAME}.log"
        self._child = await ChildProcess.start(program, self._tools.tether, log, self._on_line)
        if self._asked_to_end.is_set():
            self.kill()
        return await self._child.wait()

    def _on_line(self, line: str) -> None:
        match = _READY.match(line)
        if match is None:
            if not _ROUTINE.search(line):
                self._tools.on_line(NAME, line)
            return
        self.url, self._management = match[1], match[2]
        if self._asked_to_end.is_set():
            self.hurry()  # it was ready just before it was told to end: nobody has asked it
        self._tools.on_change()


def _in_our_flags(words: str) -> str:
    """What the gateway says of an address that it cannot have, with flags that `quire up` has."""
    what, mark, _ = words.partition("; choose another by --host and --port")
    return f"{what}; choose another by --host or --port (0 takes a free one)" if mark else words


async def close_quietly(task: asyncio.Task[None]) -> None:
    """Cancel a task that runs for ever, and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
