"""A process in place of a pod: placed, started, watched, started again when it ends, and drained.

placed ──► starts ──► ready ──► drains ──► gone
             ▲  └────── ends unasked: after a pause, on another port
"""

import asyncio
import hashlib
import json
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from quire_local.up.engine_command import HOST, CommandError, EngineCommand, claim_of_template
from quire_local.up.process import ChildProcess, Program, Tether
from quire_local.up.resource_file import Key
from quire_operator.planner.observed import Pod

FIRST_PAUSE_SECONDS = 1.0
"""Before an engine that ended is started again; doubles up to a minute."""
_LONGEST_PAUSE_SECONDS = 60.0
_GOOD_SECONDS = 60.0
"""An engine that was ready for so long begins with the first pause again."""
_STARTING_POLL_SECONDS = 0.1
_READY_POLL_SECONDS = 2.0
_MOST_FAILURES = 2
"""Questions in a row that a ready engine may leave unanswered."""
_STOP_SECONDS = 10.0
"""At the end of a run, requests have ended: an engine that takes longer hangs."""
_MAX_MESSAGE = 2000


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What all engines of a run share."""

    tether: Tether
    http: httpx.AsyncClient
    logs: Path
    on_line: Callable[[str, str], None]
    """Called with an engine's name and a line of its output."""
    on_change: Callable[[], None]
    """Called when anything of it has changed."""
    on_news: Callable[[str, str], None]
    """Called with an engine's name and a sentence for people."""


@dataclass
class Ending:
    """How a process ended the last time."""

    status: int | None = None
    message: str = ""


@dataclass
class Engine:
    """One of them; belongs to one event loop."""

    service: Key
    accelerator: str
    template: dict[str, Any]
    number: int
    name: str
    tools: Tools
    make_command: Callable[["Engine", int], EngineCommand]
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    node: str | None = None
    """Where it was placed; empty: where no GPU is needed."""
    unplaced_since: datetime | None = None
    unplaced_why: str = ""
    may_room_help: bool = True
    port: int = 0
    is_ready: bool = False
    was_ready: bool = False
    is_ending: bool = False
    is_gone: bool = False
    num_restarts: int = 0
    num_failures: int = 0
    """Ends in a row without having been ready."""
    config_problem: str = ""
    last: Ending = field(default_factory=Ending)

    def __post_init__(self) -> None:
        """Work out what follows from the template."""
        self.claim = claim_of_template(self.template)
        self.template_hash = hash_of(self.template)
        self._child: ChildProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked_to_end = asyncio.Event()
        self._is_waiting = False
        self._is_set_up = False
        """Whether the process that runs has been ready: until then it may not handle signals."""

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Of its process, while there is one."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    @property
    def age_seconds(self) -> float:
        """Since it was made."""
        return (datetime.now(UTC) - self.created_at).total_seconds()

    @property
    def log(self) -> Path:
        """Where its output is."""
        return self.tools.logs / f"{self.name}.log"

    def place(self, node: str | None, why_not: str = "", *, may_room_help: bool = True) -> None:
        """Put it on a node and start it; None: there is no room, for this reason.

        Parameters
        ----------
        may_room_help
            Whether there is room for it once engines end that it is to replace.
        """
        if node is None:
            self.may_room_help = may_room_help
            self.unplaced_since = self.unplaced_since or datetime.now(UTC)
            self.unplaced_why = why_not
            return
        self.node, self.unplaced_since, self.unplaced_why = node, None, ""
        self._task = asyncio.create_task(self._live())

    def end(self) -> None:
        """Let it finish its requests and go."""
        if self.is_ending:
            return
        self.is_ending, self.is_ready = True, False
        self._asked_to_end.set()
        if self._task is None:
            self.is_gone = True
            self.tools.on_change()
        elif self._child is not None:
            self._child.send(signal.SIGTERM)
            grace = self.template["spec"]["terminationGracePeriodSeconds"]
            asyncio.get_running_loop().call_later(grace, self.kill)

    async def stop(self) -> None:
        """End it now, and wait: nobody asks it any more."""
        self.is_ending, self.is_ready = True, False
        self._asked_to_end.set()
        if self._task is None:
            return
        if self._child is not None:
            # SIGTERM ends a process that still imports without a word, SIGINT with a traceback.
            self._child.send(signal.SIGINT if self._is_set_up else signal.SIGTERM)
        done, _ = await asyncio.wait({self._task}, timeout=_STOP_SECONDS)
        if not done:
            self.kill()
            await self._task

    def stop_now(self) -> None:
        """End it without waiting for its requests."""
        self.is_ending, self.is_ready = True, False
        self._asked_to_end.set()
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.send(signal.SIGKILL)

    def observed(self) -> Pod:
        """As the planner sees it."""
        is_waiting = self._is_waiting and not self.is_ending
        reason = "CrashLoopBackOff" if is_waiting else ""
        if self.config_problem:
            reason = "CreateContainerConfigError"
        return Pod(
            name=self.name,
            accelerator=self.accelerator,
            template_hash=self.template_hash,
            created_at=self.created_at,
            is_ready=self.is_ready,
            is_scheduled=self.node is not None,
            is_ending=self.is_ending,
            unschedulable_since=self.unplaced_since,
            scheduler_message=self.unplaced_why,
            may_room_help=self.may_room_help,
            waiting_reason=reason,
            waiting_message=self.config_problem,
            last_exit_reason="Error" if self.last.status else "",
            last_exit_code=self.last.status,
            last_exit_message=self.last.message,
            num_restarts=self.num_restarts,
            address=HOST if self.port else "",
            port=self.port,
            node=self.node or "",
        )

    async def _live(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while not self._asked_to_end.is_set():
            started_at = loop.time()
            await self._run_once()
            if self._asked_to_end.is_set():
                break
            if self.was_ready and loop.time() - started_at > _GOOD_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._is_waiting = True
            self.tools.on_change()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked_to_end.wait()
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self.num_restarts += 1
            self._is_waiting = False
        self.is_gone = True
        self.tools.on_change()

    async def _run_once(self) -> None:
        self.port = _free_port()
        try:
            command = self.make_command(self, self.port)
        except CommandError as error:
            self.config_problem = str(error)
            self.num_failures += 1
            return
        self.config_problem = ""
        program = Program(module="quire_engine", flags=command.flags, variables=command.variables)
        self._is_set_up = False
        self._child = await ChildProcess.start(
            program, self.tools.tether, self.log, lambda line: self.tools.on_line(self.name, line)
        )
        if self.is_ending:
            self.kill()
        self.tools.on_change()
        probing = asyncio.create_task(self._probe())
        status = await self._child.wait()
        probing.cancel()
        with suppress(asyncio.CancelledError):
            await probing
        self._note_end(status, self._child)

    def _note_end(self, status: int, child: ChildProcess) -> None:
        self.num_failures = 1 if self.is_ready else self.num_failures + 1
        self.is_ready = False
        if self.is_ending:
            return
        said = "\n".join(child.last_lines) or f"it said nothing; its log is {self.log}"
        if status > 128:  # its last words are not about that
            said = f"{child.ended_how}; before that it said:\n{said[-_MAX_MESSAGE // 2 :]}"
        self.last = Ending(status, said[-_MAX_MESSAGE:])
        self.tools.on_news(self.name, f"{child.ended_how}, and is started again")

    async def _probe(self) -> None:
        """Ask whether it is ready, as a kubelet would."""
        num_failures = 0
        while True:
            is_ready = await self._is_answering()
            num_failures = 0 if is_ready else num_failures + 1
            self._is_set_up = self._is_set_up or is_ready
            if is_ready != self.is_ready and (is_ready or num_failures >= _MOST_FAILURES):
                self.is_ready = is_ready and not self.is_ending
                if self.is_ready:
                    self.was_ready, self.num_failures = True, 0
                self.tools.on_change()
            seconds = _READY_POLL_SECONDS if self.is_ready else _STARTING_POLL_SECONDS
            await asyncio.sleep(seconds)

    async def _is_answering(self) -> bool:
        try:
            answer = await self.tools.http.get(f"http://{self.address}/readyz")
        except httpx.HTTPError:
            return False
        return answer.is_success


def hash_of(template: dict[str, Any]) -> str:
    """Name of a revision."""
    text = json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _free_port() -> int:
    """A port that is free now; if another takes it first, the engine is started again."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
