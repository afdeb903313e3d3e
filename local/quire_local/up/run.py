"""One run, from its first process to its last.

    Ctrl-C ── the gateway takes no more ── answers end ── engines end ── exit 0
    Ctrl-C again: what is left ends at once

However this process ends, its children end with it: see `tether`.
"""

import asyncio
import secrets
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import httpx
import msgspec

from quire_engine.errors import ConfigError, QuireError
from quire_engine.server.listener import listen
from quire_local.up.control import Control, Given
from quire_local.up.engine import Tools
from quire_local.up.folder import run_folder
from quire_local.up.gateway import Entrance, GatewayProcess, close_quietly
from quire_local.up.inventory import Inventory
from quire_local.up.page_port import PagePort
from quire_local.up.process import Tether
from quire_local.up.snapshot import News, Snapshot, take_snapshot
from quire_local.up.terminal import Terminal
from quire_local.up.watching import CHECK_SECONDS, WatchedFile
from quire_operator.planner.conditions import stamp
from quire_operator.planner.events import Event
from quire_operator.resource.status import InferenceServiceStatus

_LOOK_SECONDS = 1.0
"""How often everything is looked at, whatever was or was not heard."""
_SPACING_SECONDS = 0.02
"""Between two looks: what happens together is looked at once, and others have their turn."""
_LISTEN_SECONDS = 0.5
_KEPT_NEWS = 100
_TIMEOUT_SECONDS = 5.0
_LAST_PORT = 65535


class UpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is started with."""

    file: Path
    host: str
    port: int
    page_port: int | None
    num_gpus: dict[str, int]
    claims: dict[str, Path]
    logs: Path | None
    shows_logs: bool


class HopelessError(QuireError):
    """No service can ever become ready; the message says why."""


OnReady = Callable[[str], None]
"""Called once in a thread of its own, with the URL, when all services are ready."""


def run(settings: UpSettings, terminal: Terminal, on_ready: OnReady | None = None) -> int:
    """Run until a signal; the exit status is returned.

    Raises
    ------
    QuireError
        It could not start, or no service can ever become ready.
    """
    watched = WatchedFile(settings.file)
    listen(settings.host, settings.port).close()  # one that is taken is told before engines start
    with run_folder() as folder:
        return asyncio.run(_Run(settings, terminal, watched, folder, on_ready).run())


class _Run:
    def __init__(
        self,
        settings: UpSettings,
        terminal: Terminal,
        watched: WatchedFile,
        folder: Path,
        on_ready: OnReady | None,
    ) -> None:
        self._settings = settings
        self._terminal = terminal
        self._watched = watched
        self._on_ready = on_ready
        self._wake, self._first = asyncio.Event(), asyncio.Event()
        self._was_ready = self._is_announced = False
        self._news: deque[News] = deque(maxlen=_KEPT_NEWS)
        """The newest first."""
        self._logs = (settings.logs or folder / "logs").absolute()
        self._tether = Tether()
        self.tools = Tools(
            tether=self._tether,
            http=httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False),
            logs=self._logs,
            on_line=terminal.log,
            on_change=self._wake.set,
            on_news=self._note_trouble,
        )
        root_secret = secrets.token_hex(32).encode()
        entrance = Entrance(host=settings.host, port=settings.port)
        self.gateway = GatewayProcess(entrance, folder, root_secret, self.tools)
        self.control = Control(
            Given(
                folder=folder,
                inventory=Inventory(settings.num_gpus, datetime.now(UTC)),
                claims=settings.claims,
                root_secret=root_secret,
            ),
            self.gateway,
            self.tools,
        )

    @property
    def file_problem(self) -> str:
        """Why what the file says now is not in force."""
        return self._watched.problem

    async def run(self) -> int:
        self._make_logs()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._note_signal)
        tasks: list[asyncio.Task[None]] = []
        try:
            self.control.use(self._watched.resources)
            self._look()  # engines take longest to start: they come first
            self.gateway.start()
            tasks += self._beside()
            return await self._until_over(tasks)
        finally:
            await self._end(tasks)

    def _beside(self) -> list[asyncio.Task[None]]:
        """What runs beside the loop."""
        from quire_local.up.page import serve_page  # engines start while this is imported

        page = serve_page(self.snapshot, self.control, self.tools.http, self._page_port())
        several = (self._follow_file(), self._listen(), self.control.scale_always(), page)
        return [asyncio.create_task(one) for one in several]

    def _page_port(self) -> PagePort:
        chosen = self._settings.page_port
        port = self._settings.port
        nearby = port + 1 if 0 < port < _LAST_PORT else 0
        return PagePort(
            port=nearby if chosen is None else chosen,
            is_chosen=chosen is not None,
            on_open=self._note_page,
        )

    async def _until_over(self, tasks: list[asyncio.Task[None]]) -> int:
        while not self._first.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()
            await asyncio.sleep(_SPACING_SECONDS)
            if self._first.is_set():
                break  # what ends now is no news
            self._wake.clear()
            self._look()
            self._raise_failures(tasks)
            self._ask_when_ready()
        self._terminal.say("quire: ending; Ctrl-C again does not wait for answers")
        return 0

    def _look(self) -> None:
        for key, event in self.control.look():
            self._note(key[1], event)
        self._terminal.show(self.control.statuses)

    def _raise_failures(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error
        if self.gateway.failure:
            raise ConfigError(f"the gateway could not start: {self.gateway.failure}")
        statuses = self.control.statuses
        self._was_ready = self._was_ready or any(one.ready_replicas for one in statuses.values())
        if self._was_ready:
            return
        wanted = [key for key, status in statuses.items() if status.desired_replicas]
        reasons = {key: self.control.why_hopeless(key) for key in wanted}
        if reasons and all(reasons.values()):
            words = "; ".join(f"{key[1]}: {reason}" for key, reason in reasons.items())
            raise HopelessError(f"no service can become ready: {words}")

    def _ask_when_ready(self) -> None:
        if not self.gateway.is_ready:
            return
        if not self._is_announced:
            self._is_announced = True
            self._terminal.say(f"quire: OpenAI's API is at {self.gateway.url}/v1")
        if self._on_ready is None:
            return
        if all(map(_is_ready, self.control.statuses.values())):
            on_ready, self._on_ready = self._on_ready, None
            Thread(target=self._ask, args=(on_ready,), daemon=True).start()

    def _ask(self, on_ready: OnReady) -> None:
        self._terminal.hold()
        try:
            on_ready(self.gateway.url)
        finally:
            self._terminal.let_go()

    async def _follow_file(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self._watched.has_changed():
                continue
            problem, name = self.file_problem, str(self._settings.file)
            if problem:
                fault = problem.removeprefix(name).lstrip(":, ")
                words = f"{fault}; what it said before stays in force"
                self._note(name, Event("Warning", "FileInvalid", words))
            else:
                self._note(name, Event("Normal", "FileRead", "it was read again"))
                self.control.use(self._watched.resources)
            self._wake.set()

    async def _listen(self) -> None:
        while True:
            await asyncio.sleep(_LISTEN_SECONDS)
            await self.control.listen()

    def snapshot(self) -> Snapshot:
        """Everything that people see, as of now."""
        return take_snapshot(
            self.control,
            url=self.gateway.url,
            is_gateway_ready=self.gateway.is_ready,
            file=str(self._settings.file),
            file_problem=self.file_problem,
            news=self._news,
        )

    def _note(self, subject: str, event: Event) -> None:
        self._news.appendleft(News(at=stamp(datetime.now(UTC)), subject=subject, event=event))
        self._terminal.event(subject, event)

    def _note_trouble(self, name: str, words: str) -> None:
        self._note(name, Event("Warning", "Restarted", words))

    def _note_page(self, url: str) -> None:
        self._terminal.say(f"quire: the live page is at {url}; logs are in {self._logs}")

    def _make_logs(self) -> None:
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {self._logs}: {error.strerror}") from error

    def _note_signal(self) -> None:
        if not self._first.is_set():
            self._first.set()
            self._wake.set()
        else:
            self.gateway.hurry()
            for engine in self.control.engines:
                engine.stop_now()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """The gateway first: while its answers run, their engines are needed."""
        await self.gateway.drain()
        await self.control.stop()
        for task in tasks:
            await close_quietly(task)
        await self.tools.http.aclose()
        self._tether.close()


def _is_ready(status: InferenceServiceStatus) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in status.conditions)
