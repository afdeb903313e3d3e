"""Chat templates run in processes of their own, so that none can hold up the server.

A process gets conversations as they come and answers in the same order: however many come at
once, the event loop takes all the answers of a turn together. There is one process as long as that
is enough, and a second while the first is busy. A template that loops on one client's messages
keeps nobody waiting who comes later than a moment after; one that does not answer in time is
killed, and those behind it are rendered by the next process.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from quire_engine.errors import QuireError, RequestError
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.frames import LENGTH, frame
from quire_engine.tokenizing.render_process import Rendered, RenderSetup, RenderTask

MAX_PROCESSES = 2
ANSWER_SECONDS = 60.0
"""By the clock, for a task whose CPU time is bounded far lower."""
STUCK_SECONDS = 0.25
"""Others are not put behind a conversation that takes longer, if they can be put elsewhere."""
_MODULE = "quire_engine.tokenizing.render_process"
_NO_ANSWER = Rendered(error="the model's chat template does not get done with these messages")


class TemplateRenderer:
    """Renders conversations by one template; belongs to one event loop.

    Parameters
    ----------
    max_characters
        Longer texts are refused.
    """

    def __init__(self, template: ChatTemplate, max_characters: int) -> None:
        setup = RenderSetup(
            source=template.source, variables=template.variables, max_characters=max_characters
        )
        self._lanes = [_Lane(setup) for _ in range(MAX_PROCESSES)]

    async def start(self) -> None:
        """Have a process ready before the first conversation comes."""
        await self._lanes[0].start()

    async def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continues_last: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        template: str | None = None,
    ) -> str:
        """Write a conversation as text; see `ChatTemplate.render`.

        Parameters
        ----------
        template
            Another template than the model's, in Jinja.

        Raises
        ------
        RequestError
            The template refuses the messages, or does not get done with them within its limits.
        """
        task = RenderTask(
            messages=[dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            continues_last=continues_last,
            tools=None if tools is None else [dict(tool) for tool in tools],
            variables=dict(variables or {}),
            template=template,
        )
        lane = min(self._lanes, key=lambda lane: (lane.is_stuck, lane.num_jobs))
        rendered = await lane.submit(frame(task))
        if rendered.error is not None:
            raise RequestError(rendered.error, parameter=rendered.parameter)
        return rendered.text

    async def close(self) -> None:
        """End the processes."""
        for lane in self._lanes:
            await lane.close()


@dataclass(slots=True)
class _Job:
    """One conversation, and who waits for its text."""

    frame: bytes
    answer: asyncio.Future[Rendered]


class _Lane:
    """Conversations in order, and the process that renders them, once there is one."""

    def __init__(self, setup: RenderSetup) -> None:
        self._setup = setup
        self._jobs: deque[_Job] = deque()
        self._head_since = 0.0
        self._process: _RenderProcess | None = None
        self._taking: asyncio.Task[None] | None = None

    @property
    def num_jobs(self) -> int:
        """Conversations that wait for their text."""
        return len(self._jobs)

    @property
    def is_stuck(self) -> bool:
        """Whether one takes long."""
        now = asyncio.get_running_loop().time()
        return bool(self._jobs) and now - self._head_since > STUCK_SECONDS

    async def start(self) -> None:
        """Have the process ready."""
        self._process = await _RenderProcess.start(self._setup)

    def submit(self, frame: bytes) -> asyncio.Future[Rendered]:
        """Put a conversation in line."""
        loop = asyncio.get_running_loop()
        job = _Job(frame, loop.create_future())
        self._jobs.append(job)
        if self._taking is None or self._taking.done():
            self._head_since = loop.time()
            self._taking = asyncio.create_task(self._take_answers(), name="render")
        return job.answer

    async def close(self) -> None:
        """End the process; conversations that wait get no text."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
        await self._drop_process()

    async def _take_answers(self) -> None:
        """Take answers until nobody waits; starts the process, and another for one that fails."""
        num_sent = 0
        while self._jobs:
            process = self._process
            if process is None or process.has_ended:
                num_sent = 0
                process = await self._start_anew()
                if process is None:
                    return
            for job in islice(self._jobs, num_sent, None):
                process.send(job.frame)
            num_sent = len(self._jobs) - 1  # without the one that is answered next
            self._head_since = asyncio.get_running_loop().time()
            rendered = await process.receive()
            if rendered is None:
                await self._drop_process()
            job = self._jobs.popleft()
            if not job.answer.done():
                job.answer.set_result(rendered or _NO_ANSWER)

    async def _start_anew(self) -> "_RenderProcess | None":
        """Start another process; None if that is not possible, as all who wait are told."""
        await self._drop_process()
        try:
            await self.start()
        except OSError as error:
            while self._jobs:
                answer = self._jobs.popleft().answer
                if not answer.done():
                    answer.set_exception(QuireError(f"no process starts: {error.strerror}"))
        return self._process

    async def _drop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()


class _RenderProcess:
    """One process and the pipes to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader) -> None:
        self._process = process
        self._reader = reader

    @classmethod
    async def start(cls, setup: RenderSetup) -> "_RenderProcess":
        """Start a process; it is ready when it answers."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, stdin=PIPE, stdout=PIPE
        )
        if process.stdout is None:
            raise RuntimeError("bug: a process was started without its pipes")
        started = cls(process, process.stdout)
        started.send(frame(setup))
        return started

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, by whatever hand."""
        return self._process.returncode is not None

    def send(self, frame: bytes) -> None:
        """Give it the next conversation."""
        if self._process.stdin is not None:
            self._process.stdin.write(frame)

    async def receive(self) -> Rendered | None:
        """The next text; None if none comes."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                answer = await self._reader.readexactly(length)
        except (TimeoutError, asyncio.IncompleteReadError):
            return None
        return msgspec.msgpack.decode(answer, type=Rendered)

    async def end(self) -> None:
        """Kill it, and close its pipes."""
        if not self.has_ended:
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        await self._reader.read()  # to the end, so that the pipe closes
