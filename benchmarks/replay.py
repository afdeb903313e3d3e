"""Replays a trace through one real engine core in virtual time: arrivals, steps, answers."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from quire_engine.config import EngineConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.scripted import ScriptedExecutor
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.messages import AddRequest, FinishReason, Priority, TokenDelta
from quire_engine.protocol.sampling import SamplingParams

STOP_TOKEN = 2

DrawLength = Callable[[int, int], int]


@dataclass(slots=True)
class Outcome:
    """What became of one request; times in seconds of the trace."""

    arrival: float
    num_prompt_tokens: int
    num_output_tokens: int
    first_token_at: float | None = None
    ended_at: float | None = None
    num_received: int = 0
    retry_after: float | None = None
    """Set if it was refused."""

    @property
    def first_token_seconds(self) -> float:
        """How long the first token took; infinity if none came."""
        return inf if self.first_token_at is None else self.first_token_at - self.arrival

    def meets(self, first_token_seconds: float, per_token_seconds: float) -> bool:
        """Whether it was answered whole and within both objectives."""
        if self.first_token_at is None or self.num_received < self.num_output_tokens:
            return False
        if self.first_token_seconds > first_token_seconds:
            return False
        pauses = max(self.num_received - 1, 1)
        return (self.ended_at or 0.0) - self.first_token_at <= per_token_seconds * pauses


@dataclass(frozen=True)
class ReplayResult:
    """Outcomes, in the order of the trace, and the engine as it was at the end."""

    outcomes: Sequence[Outcome]
    core: EngineCore
    seconds: float
    """Virtual time from the first arrival to the last answer."""


class Replay:
    """Feeds one engine core from a trace.

    Parameters
    ----------
    max_tokens
        What the clients ask for: the ledger sees this, never the true length.
    priority
        The class of each request, by its number.
    prepare
        Changes the core before the first request, to put another policy in.
    watch
        Called after each step with the core and the time.
    hopeless_after_seconds
        The replay ends when all arrived and none that is left had or can have a first token
        within this time; None waits for all.
    macro_steps
        Take steps that decode the same requests as one.
    """

    def __init__(
        self,
        config: EngineConfig,
        trace: Sequence[TraceRequest],
        *,
        max_tokens: int,
        priority: Callable[[int], Priority] = lambda index: Priority.INTERACTIVE,
        prepare: Callable[[EngineCore], None] = lambda core: None,
        watch: Callable[[EngineCore, float], None] | None = None,
        hopeless_after_seconds: float | None = None,
        macro_steps: bool = True,
    ) -> None:
        self.clock = VirtualClock()
        longest = config.model.max_model_len or 1 << 30
        trace = [_shorten(request, longest) for request in trace]
        self._longest = longest
        self._lengths = {index: request.num_output_tokens for index, request in enumerate(trace)}
        self.executor = ScriptedExecutor(config, clock=self.clock, output_lengths=self._lengths)
        self.core = EngineCore(config, self.executor, self.executor.allocate_cache())
        prepare(self.core)
        self._trace = trace
        self._max_tokens = max_tokens
        self._priority = priority
        self._watch = watch
        self._hopeless_after_seconds = hopeless_after_seconds
        self._macro_steps = macro_steps
        self.outcomes = [
            Outcome(r.arrival_seconds, r.num_prompt_tokens, r.num_output_tokens) for r in trace
        ]

    def run(self) -> ReplayResult:
        """Replay everything and wait for the answers."""
        index = 0
        while index < len(self._trace) or (self.core.has_work() and self._has_hope()):
            if not self.core.has_work():
                self.clock.sleep_until(self._trace[index].arrival_seconds)
            while index < len(self._trace) and self._is_due(index):
                self._arrive(index)
                index += 1
            if self.core.has_work():
                self._step(index)
        return ReplayResult(self.outcomes, self.core, self.clock.now())

    def redraw(self, draw_length: DrawLength, arrivals: Iterator[TraceRequest]) -> None:
        """Let what cannot be known by now be otherwise, and let the replay go on from there.

        Parameters
        ----------
        draw_length
            Gives (prompt tokens, tokens generated so far) an output that is longer than that.
        arrivals
            Who comes instead of those of the trace, from now on.
        """
        for request in self.core.scheduler.roster.by_id.values():
            if not request.request_id.isdecimal():
                continue
            num_generated = len(request.token_ids) - request.num_prompt_tokens
            length = draw_length(request.num_prompt_tokens, num_generated)
            length = min(length, request.max_length - request.num_prompt_tokens)
            self._lengths[int(request.request_id)] = length
            if request.row is not None:
                self.executor.rescript(request.row, request.num_prompt_tokens + length - 1)
        first = bisect_right(self._trace, self.clock.now(), key=lambda r: r.arrival_seconds)
        for index, arrival in zip(range(first, len(self._trace)), arrivals, strict=False):
            self._trace[index] = shortened = _shorten(arrival, self._longest)
            self._lengths[index] = shortened.num_output_tokens

    def _has_hope(self) -> bool:
        """Whether any request left can still meet its objective; all have arrived."""
        limit = self._hopeless_after_seconds
        if limit is None or self.clock.now() <= self._trace[-1].arrival_seconds + limit:
            return True
        running = self.core.scheduler.running
        return any(self.outcomes[int(r.request_id)].first_token_seconds <= limit for r in running)

    def _is_due(self, index: int) -> bool:
        return self._trace[index].arrival_seconds <= self.clock.now()

    def _arrive(self, index: int) -> None:
        request = self._trace[index]
        refusal = self.core.add(
            AddRequest(
                client_id="replay",
                request_id=str(index),
                prompt_token_ids=[1] * request.num_prompt_tokens,
                priority=self._priority(index),
                sampling=SamplingParams(
                    max_tokens=max(self._max_tokens, request.num_output_tokens),
                    seed=index,
                    stop_token_ids=(STOP_TOKEN,),
                ),
            ),
            request.arrival_seconds,
        )
        if refusal is not None:
            self._take(refusal)

    def _step(self, next_index: int) -> None:
        steps = self.core.scheduler.max_identical_steps() if self._macro_steps else 1
        if steps > 1:
            until = (
                self._trace[next_index].arrival_seconds
                if next_index < len(self._trace)
                else float("inf")
            )
            positions = {
                request.row: request.num_computed_tokens
                for request in self.core.scheduler.running
                if request.row is not None
            }
            steps = self.executor.count_steps(steps, positions=positions, until=until)
        for _, delta in self.core.step(self.clock.now(), num_steps=steps):
            self._take(delta)
        if self._watch is not None:
            self._watch(self.core, self.clock.now())

    def _take(self, delta: TokenDelta) -> None:
        outcome = self.outcomes[int(delta.request_id)]
        now = self.clock.now()
        if delta.finish_reason is FinishReason.REFUSED:
            outcome.retry_after = delta.retry_after_seconds
            outcome.ended_at = now
            return
        if outcome.first_token_at is None:
            outcome.first_token_at = now
        outcome.num_received += len(delta.token_ids)
        if delta.finish_reason is not None:
            outcome.ended_at = now


def _shorten(request: TraceRequest, max_model_len: int) -> TraceRequest:
    """Let a request fit the model: the prompt gets at most half, the output what is left."""
    num_prompt_tokens = min(request.num_prompt_tokens, max_model_len // 2)
    return TraceRequest(
        request.arrival_seconds,
        num_prompt_tokens,
        min(request.num_output_tokens, max_model_len - num_prompt_tokens - 1),
    )
