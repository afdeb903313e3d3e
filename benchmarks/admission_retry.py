"""Whether the time to try again comes true.

Probes ask an overloaded engine for admission. One that is refused asks again after every step,
until it is let in: that is the real time to room. Both it and the prediction are within a second
and a minute, as Retry-After is.

Room comes when requests end that nobody knows the ends of, and others may arrive and take it first.
How much of the error that explains is measured beside: an oracle is told the very state of the
engine, the true distributions of lengths and arrivals, and how the engine decides. At each refusal
it lets the engine run on many times, with lengths and arrivals drawn anew, and says the time whose
median error over these futures is least. No prediction from the same state can do better, but for
the oracle's own chance. It is asked for one trace, for it takes minutes; what was told is held
against several (`..._traces_...`).
"""

import math
import os
import random
import statistics
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from benchmarks.admission_cases import CASES, Case
from benchmarks.admission_runs import measure_capacity
from benchmarks.replay import Replay
from quire_engine.core.engine import EngineCore
from quire_engine.profiles.output_length_by_prompt import class_of
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.messages import Priority
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.admission import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS
from quire_engine.scheduler.request import Request

_MAX_TOKENS = 2000
_PROBE_SECONDS = 3.0
_LAST = 1 << 60
"""A probe is ordered behind all others."""
_RETRY_LOADS = (1.5, 2.0)
_NUM_FUTURES = 11
"""Of each refused probe."""
_NUM_TRACES = 6


@dataclass(slots=True)
class Probe:
    """A request that was refused, and asks again; times in seconds."""

    like: TraceRequest
    refused_at: float
    predicted: float
    futures: list[float]
    """Real times in the oracle's futures, if it was asked."""
    real: float = 0.0
    """0 as long as it is not let in."""

    @property
    def oracle(self) -> float:
        """What the oracle says: the time with the least median error over its futures."""
        return min(self.futures, key=lambda time: _median_error([(time, f) for f in self.futures]))


class Futures:
    """Lets a replay go on as it might, in processes of their own.

    Parameters
    ----------
    pool
        Requests like those that arrive.
    by_prompt
        Whether long prompts have other outputs than short ones.
    """

    def __init__(
        self, pool: Sequence[TraceRequest], *, requests_per_second: float, by_prompt: bool
    ) -> None:
        self._pool = pool
        self._rate = requests_per_second
        self._by_prompt = by_prompt
        self._random = random.Random(0)
        self._outputs: dict[int, list[int]] = {}
        for request in pool:
            self._outputs.setdefault(self._class(request.num_prompt_tokens), []).append(
                request.num_output_tokens
            )
        for outputs in self._outputs.values():
            outputs.sort()

    def fork(self, replay: Replay) -> int | None:
        """Begin another future; returns where it will say its time to room, or None within it."""
        reading, writing = os.pipe()
        seed = self._random.random()
        if os.fork():
            os.close(writing)
            return reading
        os.close(reading)
        self._random.seed(seed)
        self._writing = writing
        replay.redraw(self._draw_length, self._arrivals(replay.clock.now()))
        return None

    def end(self, seconds: float) -> NoReturn:
        """Say the time to room, and end this process, within a future."""
        os.write(self._writing, struct.pack("d", seconds))
        os._exit(0)

    def _class(self, num_prompt_tokens: int) -> int:
        return class_of(num_prompt_tokens) if self._by_prompt else 0

    def _draw_length(self, num_prompt_tokens: int, num_generated: int) -> int:
        outputs = self._outputs[self._class(num_prompt_tokens)]
        first = bisect_right(outputs, num_generated)
        return self._random.choice(outputs[first:]) if first < len(outputs) else num_generated + 1

    def _arrivals(self, now: float) -> Iterator[TraceRequest]:
        while True:
            now += self._random.expovariate(self._rate)
            like = self._random.choice(self._pool)
            yield TraceRequest(now, like.num_prompt_tokens, like.num_output_tokens)


class Prober:
    """Watches a replay, and asks for admission besides; what is let in is withdrawn at once.

    Parameters
    ----------
    futures
        None for no oracle.
    """

    def __init__(
        self, trace: Sequence[TraceRequest], futures: Futures | None, *, begin_at: float
    ) -> None:
        self.answered: list[Probe] = []
        self.replay: Replay | None = None
        """Who is watched: to be set before it runs."""
        self._trace = trace
        self._futures = futures
        self._is_future = False
        self._random = random.Random(0)
        self._next_at = begin_at
        self._end_at = trace[-1].arrival_seconds - MAX_RETRY_SECONDS
        self._probes: list[Probe] = []

    def watch(self, core: EngineCore, now: float) -> None:
        """Ask again for all that were refused, and for a new one now and then."""
        self._probes = [probe for probe in self._probes if not self._is_answered(core, probe, now)]
        if self._next_at <= now < self._end_at:
            self._next_at = now + _PROBE_SECONDS
            like = self._random.choice(self._trace)
            predicted = self._ask(core, like, now)
            if predicted is not None:
                self._follow(Probe(like, now, predicted, []))

    def _follow(self, probe: Probe) -> None:
        """Ask for it again from now on, and in the futures that may be."""
        for _ in range(_NUM_FUTURES if self._futures else 0):
            reading = self._futures.fork(self.replay)  # type: ignore[arg-type, union-attr]  # they are
            if reading is None:
                self._is_future = True
                self._next_at = math.inf
                self._probes = [probe]
                return
            with os.fdopen(reading, "rb") as pipe:
                (seconds,) = struct.unpack("d", pipe.read())
            os.wait()
            probe.futures.append(seconds)
        self._probes.append(probe)

    def _is_answered(self, core: EngineCore, probe: Probe, now: float) -> bool:
        seconds = now - probe.refused_at
        if seconds < MAX_RETRY_SECONDS and self._ask(core, probe.like, now) is not None:
            return False
        probe.real = min(max(seconds, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
        if self._is_future:
            self._futures.end(probe.real)  # type: ignore[union-attr]  # it made this process
        self.answered.append(probe)
        return True

    def _ask(self, core: EngineCore, like: TraceRequest, now: float) -> float | None:
        """Return when to try again, or None if there is room; asking leaves no trace."""
        scheduler = core.scheduler
        request = Request(
            request_id="probe",
            client_id="probe",
            prompt_token_ids=[1] * like.num_prompt_tokens,
            sampling=SamplingParams(max_tokens=_MAX_TOKENS),
            priority=Priority.INTERACTIVE,
            seniority=(int(Priority.INTERACTIVE), now, _LAST),
            seed=0,
            max_length=like.num_prompt_tokens + _MAX_TOKENS,
            table=scheduler.blocks.open_table({}),
        )
        slo = scheduler.admission.limits.slo_time_to_first_token_seconds
        request.deadline = None if slo is None else now + slo
        refusal = scheduler.add(request, now)
        scheduler.abort(["probe"])
        return refusal.retry_after_seconds if refusal else None


def measure_retry() -> dict[str, float]:
    """Hold Retry-After against the real time to room, in cases bound by blocks and by prompts."""
    figures: dict[str, float] = {}
    for name in ("chat-l4", "prompts-a100"):
        case = next(case for case in CASES if case.name == name)
        capacity = measure_capacity(case, case.span_seconds)
        for load in _RETRY_LOADS:
            figures |= _measure_retry(case, load, capacity)
    return {
        **figures,
        "retry_error_median_max": _largest(figures, "traces_error_median"),
        "retry_longer_error_median_max": _largest(figures, "traces_longer_error_median"),
        "retry_longer_oracle_error_median_max": _largest(figures, "longer_oracle_error_median"),
    }


def _largest(figures: dict[str, float], ending: str) -> float:
    return max(value for key, value in figures.items() if key.endswith(ending))


def _measure_retry(case: Case, load: float, capacity: float) -> dict[str, float]:
    rate = load * capacity
    first = _probe(case, rate, seed=0, with_oracle=True)
    others = [p for seed in range(1, _NUM_TRACES) for p in _probe(case, rate, seed=seed)]
    key = f"retry_{case.name}_{load:g}x"
    longer = _longer(first)
    return {
        **_errors(key, first),
        f"{key}_oracle_error_median": _median_error([(p.oracle, p.real) for p in first]),
        f"{key}_longer_oracle_error_median": _median_error([(p.oracle, p.real) for p in longer]),
        f"{key}_predicted_median_seconds": statistics.median(p.predicted for p in first),
        f"{key}_real_median_seconds": statistics.median(p.real for p in first),
        **_errors(f"{key}_traces", [*first, *others]),
    }


def _probe(case: Case, rate: float, *, seed: int, with_oracle: bool = False) -> list[Probe]:
    trace = case.traffic(rate, case.warm_up_seconds + 3 * case.span_seconds, seed=seed)
    futures = Futures(trace, requests_per_second=rate, by_prompt=case.lengths is None)
    prober = Prober(trace, futures if with_oracle else None, begin_at=case.warm_up_seconds)
    prober.replay = Replay(case.config(), trace, max_tokens=case.max_tokens, watch=prober.watch)
    prober.replay.run()
    return prober.answered


def _longer(probes: Sequence[Probe]) -> list[Probe]:
    """Return those that waited for longer than what is told at least, which most do not."""
    return [probe for probe in probes if probe.real > MIN_RETRY_SECONDS]


def _errors(key: str, probes: Sequence[Probe]) -> dict[str, float]:
    longer = _longer(probes)
    return {
        f"{key}_probes": float(len(probes)),
        f"{key}_error_median": _median_error([(p.predicted, p.real) for p in probes]),
        f"{key}_longer_probes": float(len(longer)),
        f"{key}_longer_error_median": _median_error([(p.predicted, p.real) for p in longer]),
    }


def _median_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of |predicted - real| / real over (predicted, real)."""
    if not pairs:
        return 0.0
    return statistics.median(abs(predicted - real) / real for predicted, real in pairs)
