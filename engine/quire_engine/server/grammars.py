"""Grammars on their way from a request to the core: tried in processes of their own, and kept.

    wish ──► kept? ──► a process that is free, or the next that is ──► Trial ──► kept, refusals too
                        (killed when it does not answer)

Nothing is started before the first wish. A process says first what the model's tokens stand for,
which the core is told with the first grammar, so that the server itself never lists them.
"""

import asyncio
import hashlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from quire_engine.errors import QuireError, RequestError
from quire_engine.grammar.writing import encode_spec, name_parameter
from quire_engine.protocol.grammar import Grammar, GrammarSpec
from quire_engine.server.errors import ApiError
from quire_engine.server.grammar_process import Trial, TrialSetup
from quire_engine.server.metrics import GrammarMetrics
from quire_engine.tokenizing.frames import LENGTH, frame

MAX_PROCESSES = 2
MAX_WISH_BYTES = 1 << 20
MAX_WAITING = 64
"""Wishes that are tried or wait for it; more are told to come again."""
MAX_KEPT_BYTES = 32 << 20
MAX_KEPT = 4096
ANSWER_SECONDS = 60.0
"""By the clock, for a trial whose CPU time is bounded far lower: only a busy machine takes it."""
START_SECONDS = 120.0
_MODULE = "quire_engine.server.grammar_process"
_NO_ANSWER = "it takes too long or too much memory to compile: make it simpler"


class Grammars:
    """Tries grammars for one model; belongs to one event loop.

    Parameters
    ----------
    on_vocabulary
        Told what tokens stand for, as msgpack, before the first grammar is returned.
    """

    def __init__(
        self,
        setup: TrialSetup,
        metrics: GrammarMetrics,
        on_vocabulary: Callable[[bytes], None],
    ) -> None:
        self._setup = setup
        self._metrics = metrics
        self._on_vocabulary = on_vocabulary
        self._kept: OrderedDict[bytes, Trial] = OrderedDict()
        self._num_kept_bytes = 0
        self._under_way: dict[bytes, asyncio.Task[Trial]] = {}
        self._seats = asyncio.Semaphore(MAX_PROCESSES)
        self._idle: list[_TrialProcess] = []

    async def prepare(self, spec: GrammarSpec) -> Grammar:
        """Return the grammar of what is wanted.

        Raises
        ------
        RequestError
            It cannot be heeded; the message says what of it.
        ApiError
            Too many are being tried, or the machine is too busy.
        """
        try:
            wish = encode_spec(spec)
        except OverflowError:
            raise _refuse(spec, "whole numbers beyond 64 bits cannot be heeded") from None
        if len(wish) > MAX_WISH_BYTES:
            raise _refuse(spec, f"larger than {MAX_WISH_BYTES} bytes")
        trial = await self._find(hashlib.sha256(wish).digest(), wish)
        if trial.grammar is None:
            raise _refuse(spec, trial.error or _NO_ANSWER)
        return trial.grammar

    def give_up(self) -> None:
        """Try no more what is tried or waits for it: who wants it is told to go elsewhere."""
        for task in self._under_way.values():
            task.cancel()

    async def close(self) -> None:
        """End the processes; wishes that wait are not granted."""
        self.give_up()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        while self._idle:
            await self._idle.pop().end()

    async def _find(self, key: bytes, wish: bytes) -> Trial:
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            self._metrics.hits.add()
            return kept
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= MAX_WAITING:
                raise ApiError(
                    429,
                    "Too many new grammars at once. Send the request again later.",
                    code="rate_limit_exceeded",
                    retry_after_seconds=2.0,
                )
            task = asyncio.create_task(self._try(key, wish), name="grammar")
            self._under_way[key] = task
        try:
            return await asyncio.shield(task)  # others may wait for it too
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # the client has left
            raise ApiError(
                503,
                "The server was drained before the form of the answer was compiled; send the"
                " request to another one.",
                code="draining",
                retry_after_seconds=1.0,
            ) from None

    async def _try(self, key: bytes, wish: bytes) -> Trial:
        try:
            async with self._seats:
                trial = await self._run(wish)
        finally:
            del self._under_way[key]
        self._metrics.seconds.observe(trial.seconds)
        if trial.grammar is None:
            self._metrics.failures.add()
        self._keep(key, trial)
        return trial

    async def _run(self, wish: bytes) -> Trial:
        process = await self._take_living() or await self._start()
        trial = None
        try:
            trial = await process.ask(wish)
        except TimeoutError:  # it says nothing of the wish, and is not kept
            raise _too_busy() from None
        finally:
            if trial is None:
                await process.end()
            else:
                self._idle.append(process)
        if process.was_killed_by_others:  # nor does this say anything of the wish
            raise _too_busy()
        return trial or Trial(error=_NO_ANSWER)

    async def _take_living(self) -> "_TrialProcess | None":
        """A process that is free; those that somebody ended meanwhile are put away."""
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.end()
        return None

    async def _start(self) -> "_TrialProcess":
        process = await _TrialProcess.start(self._setup)
        vocabulary = None
        try:
            vocabulary = await process.receive(START_SECONDS)
        except TimeoutError:
            raise _too_busy() from None
        finally:
            if vocabulary is None:
                await process.end()
        if vocabulary is None:
            raise QuireError("the process that compiles grammars does not start; see its log")
        self._on_vocabulary(vocabulary)
        return process

    def _keep(self, key: bytes, trial: Trial) -> None:
        self._kept[key] = trial
        self._num_kept_bytes += _size_of(trial)
        while len(self._kept) > MAX_KEPT or self._num_kept_bytes > MAX_KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._num_kept_bytes -= _size_of(dropped)


def _size_of(trial: Trial) -> int:
    return len(trial.grammar.text if trial.grammar else trial.error or "")


def _too_busy() -> ApiError:
    return ApiError(
        503,
        "The machine is too busy to compile the form of the answer now. Send the request again"
        " later.",
        code="too_busy",
        retry_after_seconds=5.0,
    )


def _refuse(spec: GrammarSpec, reason: str) -> RequestError:
    parameter = name_parameter(spec)
    return RequestError(f"{parameter}: {reason}", parameter=parameter)


class _TrialProcess:
    """One process and the pipes to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader) -> None:
        self._process = process
        self._reader = reader

    @classmethod
    async def start(cls, setup: TrialSetup) -> "_TrialProcess":
        """Start a process; what it says first is the vocabulary."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", _MODULE, stdin=PIPE, stdout=PIPE
        )
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("bug: a process was started without its pipes")
        process.stdin.write(frame(setup))
        return cls(process, process.stdout)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked, as far as is known."""
        is_open = self._process.stdin is not None and not self._process.stdin.is_closing()
        return is_open and self._process.returncode is None and not self._reader.at_eof()

    @property
    def was_killed_by_others(self) -> bool:
        """Whether it has ended by a signal that no wish causes: the kernel's, short of memory."""
        return self._process.returncode == -signal.SIGKILL

    async def ask(self, wish: bytes) -> Trial | None:
        """Have a wish tried; None if the process ends over it."""
        if self._process.stdin is not None:
            self._process.stdin.write(frame(wish))
        answer = await self.receive(ANSWER_SECONDS)
        return None if answer is None else msgspec.msgpack.decode(answer, type=Trial)

    async def receive(self, seconds: float) -> bytes | None:
        """The next frame; None if the process ends before; TimeoutError if it takes too long."""
        try:
            async with asyncio.timeout(seconds):
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return None

    async def end(self) -> None:
        """Kill it, and close its pipes."""
        if self._process.returncode is None and not self._reader.at_eof():
            self._process.kill()  # never one that has ended: how it did would get lost
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        await self._reader.read()  # to the end, so that the pipe closes
