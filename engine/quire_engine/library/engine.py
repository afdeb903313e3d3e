"""`Engine`: one model in this process, stepped by whoever made it."""

import itertools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Self

from quire_engine.config import EngineConfig
from quire_engine.core.engine import EngineCore
from quire_engine.errors import EngineDeadError, RequestError
from quire_engine.execution.base import Executor, Progress
from quire_engine.execution.recovering import (
    RecoveringExecutor,
    Recovery,
    RecoveryAction,
    retry_then,
)
from quire_engine.library.choosing import choose, choose_text
from quire_engine.library.loading import load
from quire_engine.library.params import GenerationParams
from quire_engine.library.results import Result
from quire_engine.library.stall import StallWatch
from quire_engine.library.streaming import Pump
from quire_engine.library.tracked import Listener, TrackedRequest
from quire_engine.protocol.messages import AddRequest, TokenDelta
from quire_engine.server.text_maker import TextMaker

STALL_STEPS = 1000
STALL_SECONDS = 30.0
_CLIENT_ID = "library"
_DEFAULTS = GenerationParams()


def _quiet(stage: str, fraction: float) -> None:
    """Show no progress."""


class Engine:
    """A loaded model; use it in a `with` block, or call `close`.

    `submit_request`, `step`, `run` and `abort` are for one thread. `stream` is for one event loop,
    and steps by itself; do not call `step` or `run` while a stream is read.

    Parameters
    ----------
    config
        See `make_config`; its server settings are not used, but for request_timeout_seconds.
    recovery
        Decides what follows a failed step; by default it is retried max_retry_attempts times, and
        then its requests end with an error.
    progress
        Told how far loading has come.
    executor
        Computes in place of the configured one.
    clock
        Seconds that never go back.

    Raises
    ------
    QuireError
        The model cannot be fetched, read or held.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        recovery: Recovery | None = None,
        progress: Progress = _quiet,
        executor: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or EngineConfig()
        attempts = self.config.executor.max_retry_attempts
        decide = recovery or retry_then(RecoveryAction.SKIP, max_retry_attempts=attempts)
        inner, self.tokenizer, self._generation = load(self.config, executor, progress)
        self._executor = RecoveringExecutor(inner, decide)
        self._clock = clock
        self._numbers = itertools.count()
        self._tracked: dict[str, TrackedRequest] = {}
        self._stall = StallWatch(max_steps=STALL_STEPS, max_seconds=STALL_SECONDS)
        self._pump = Pump(self)
        self._death: str | None = None
        self._executor.load(progress)
        self._core = self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended."""
        return bool(self._tracked)

    @property
    def is_stalled(self) -> bool:
        """Whether requests wait and nothing has been computed for long."""
        return self._stall.is_stalled

    @property
    def core(self) -> EngineCore:
        """Scheduler and blocks, for figures: `core.stats()`."""
        return self._core

    def submit_request(
        self, prompt: str | Sequence[int], params: GenerationParams = _DEFAULTS
    ) -> str:
        """Let a prompt wait for its turn; returns the id that its result will have.

        Raises
        ------
        RequestError
            The prompt is empty or too long, a choice is none that the model can follow, or too
            many wait already.
        EngineDeadError
            The engine was shut down.
        """
        return self.submit(prompt, params, None)

    def submit(
        self,
        prompt: str | Sequence[int],
        params: GenerationParams,
        listener: Listener | None,
    ) -> str:
        """Like `submit_request`, with someone who is told each piece of text."""
        self._require_alive()
        token_ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        sampling, beams = choose(
            params,
            token_ids,
            tokenizer=self.tokenizer,
            facts=self._core.facts,
            defaults=self._generation,
            max_num_seqs=self.config.scheduler.max_num_seqs,
        )
        request_id = f"request-{next(self._numbers)}"
        now = self._clock()
        request = AddRequest(
            client_id=_CLIENT_ID,
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=sampling,
            beams=beams,
        )
        if refusal := self._core.add(request, now):
            raise RequestError(refusal.error or "the engine has no room for this request now")
        seconds = params.timeout_seconds or self.config.server.request_timeout_seconds
        self._tracked[request_id] = TrackedRequest(
            request_id,
            num_prompt_tokens=len(token_ids),
            maker=TextMaker(self.tokenizer, token_ids, sampling, choose_text(params)),
            deadline=now + seconds,
            listener=listener,
        )
        return request_id

    def step(self) -> list[Result]:
        """Compute one step; returns the requests that ended by it.

        Raises
        ------
        EngineDeadError
            The engine was shut down.
        """
        self._require_alive()
        return self.deliver(self.compute())

    def run(self) -> list[Result]:
        """Step until every request has ended; returns their results in order of submission."""
        results = []
        while self.has_work and self._death is None:
            results += self.step()
        return sorted(results, key=lambda result: int(result.request_id.rpartition("-")[2]))

    def stream(
        self, prompt: str | Sequence[int], params: GenerationParams = _DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Answer piece by piece; several streams share the steps.

        Leaving early ends the request: at once by `aclose`, else when the generator is collected.

        Raises
        ------
        RequestError
            The prompt is refused, or its request ended with an error.
        EngineDeadError
            The engine was shut down.
        """
        return self._pump.read(prompt, params)

    def abort(self, request_id: str) -> Result | None:
        """End a request at once and free its blocks; None if it has ended already."""
        tracked = self._tracked.pop(request_id, None)
        if tracked is None:
            return None
        self._core.abort([request_id])
        return tracked.end("abort")

    def close(self) -> None:
        """End all requests and let go of the model; safe to call twice."""
        if self._death is None:
            self._shut_down("the engine was closed")

    # -- a step in two halves: `compute` may run in another thread ---------------------------

    def compute(self) -> list[TokenDelta]:
        """Schedule and compute one step."""
        return [delta for _, delta in self._core.step(self._clock())]

    def deliver(self, deltas: list[TokenDelta]) -> list[Result]:
        """Take in what a step brought, what went wrong in it, and whose time is up."""
        results = []
        for delta in deltas:
            tracked = self._tracked.get(delta.request_id)
            result = tracked.take(delta) if tracked else None
            if result is not None:
                del self._tracked[delta.request_id]
                if delta.finish_reason is None:  # the text ended it, and the core goes on
                    self._core.abort([delta.request_id])
                results.append(result)
        results += self._recover()
        now = self._clock()
        results += self._end_overdue(now)
        progress = self._core.scheduler.counters.num_scheduled_tokens
        self._stall.note(progress, now, has_work=self.has_work)
        return results

    def _recover(self) -> list[Result]:
        """Do what was decided about a step that failed, beyond ending its own requests."""
        decision, self._executor.decision = self._executor.decision, None
        if decision is RecoveryAction.SHUTDOWN:
            return self._shut_down("the engine shut down after a step that failed")
        if decision is not RecoveryAction.RESET:
            return []
        ended = self._end_all("the engine was reset after a step that failed")
        self._core = self._begin()
        return ended

    def _begin(self) -> EngineCore:
        """An empty core over a fresh cache."""
        facts = self._executor.allocate_cache()
        clock = self._clock if self._executor.step_time is None else None
        return EngineCore(
            self.config,
            self._executor,
            facts,
            clock=clock,
            load_tokenizer=lambda: self.tokenizer,
        )

    def _end_overdue(self, now: float) -> list[Result]:
        overdue = [request for request in self._tracked.values() if now >= request.deadline]
        for request in overdue:
            del self._tracked[request.request_id]
        self._core.abort([request.request_id for request in overdue])
        error = "the request did not end in time"
        return [request.end("timeout", error=error) for request in overdue]

    def _end_all(self, error: str) -> list[Result]:
        tracked, self._tracked = list(self._tracked.values()), {}
        self._core.abort([request.request_id for request in tracked])
        return [request.end("error", error=error) for request in tracked]

    def _shut_down(self, reason: str) -> list[Result]:
        self._death = reason
        ended = self._end_all(reason)
        self._executor.close()
        return ended

    def _require_alive(self) -> None:
        if self._death is not None:
            raise EngineDeadError(f"{self._death}: make a new one")
