"""What admission costs in processor time: answers, the ledger in a step, a whole trace."""

import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.admission_cases import CASES, chat_trace
from benchmarks.replay import STOP_TOKEN, Replay
from quire_engine.config import AdmissionConfig, EngineConfig, ExecutorConfig, ModelConfig
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.cost import OccupancyCurve
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.ledger import ReservationLedger

_NUM_RUNNING = 256
_NUM_STEPS = 800
_PROMPT_TOKENS = (300, 900)
_MAX_TOKENS = 1200


class TimedLedger:
    """Adds up the processor time of a ledger's curves and estimates."""

    def __init__(self, ledger: ReservationLedger) -> None:
        self.seconds = 0.0
        self._curve, self._learn = ledger.curve, ledger.learn
        ledger.curve = self.curve  # type: ignore[method-assign]
        ledger.learn = self.learn  # type: ignore[method-assign]

    def curve(self, num_lacking_blocks: int) -> OccupancyCurve:
        """Predict, and time it."""
        began = time.thread_time()
        curve = self._curve(num_lacking_blocks)
        self.seconds += time.thread_time() - began
        return curve

    def learn(self) -> None:
        """Learn, and time it."""
        began = time.thread_time()
        self._learn()
        self.seconds += time.thread_time() - began


def measure_speed() -> dict[str, float]:
    """Return seconds of the replay, and milliseconds of answers and of the ledger in a step."""
    return measure_trace() | measure_answers()


def measure_trace() -> dict[str, float]:
    """Replay the whole chat trace, as fast as it was recorded, through an 8B model on an H100."""
    config = EngineConfig(
        model=ModelConfig(max_model_len=16_384),
        admission=AdmissionConfig(slo_time_to_first_token=2.0, slo_time_per_output_token=0.06),
        executor=ExecutorConfig(simulate="h100", model_shape="llama3.1-8b"),
    )
    trace = list(chat_trace())
    began, cpu_began = time.perf_counter(), time.thread_time()
    result = Replay(config, trace, max_tokens=2000).run()
    return {
        "trace_replay_seconds": time.perf_counter() - began,
        "trace_replay_cpu_seconds": time.thread_time() - cpu_began,
        "trace_replay_requests": float(len(trace)),
        "trace_replay_steps": float(result.core.num_steps),
    }


@contextmanager
def undisturbed() -> Iterator[bool]:
    """Keep other processes off this one's core for a few seconds; tells whether that is allowed.

    On a crowded machine one answer in ten meets caches that another process has filled, and the
    99th percentile tells of those alone.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (AttributeError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def measure_answers() -> dict[str, float]:
    """Time answers and the ledger's part of a step, undisturbed where allowed and as things are."""
    with undisturbed() as is_alone:
        alone = _measure_answers() if is_alone else {}
    crowded = _measure_answers()
    return {**crowded, **{f"undisturbed_{key}": value for key, value in alone.items()}}


def _measure_answers() -> dict[str, float]:
    """Do so while 256 requests run."""
    case = next(case for case in CASES if case.name == "seats-h100")
    source = random.Random(0)
    lengths = [
        TraceRequest(0.0, source.randint(*_PROMPT_TOKENS), _MAX_TOKENS) for _ in range(_NUM_RUNNING)
    ]
    replay = Replay(case.config(), lengths, max_tokens=_MAX_TOKENS)
    core, clock = replay.core, replay.clock
    for index, request in enumerate(lengths):
        core.add(_request(str(index), request.num_prompt_tokens), clock.now())
        core.step(clock.now())
    while any(not request.is_decoding for request in core.scheduler.running):
        core.step(clock.now())
    if len(core.scheduler.running) != _NUM_RUNNING:
        raise SystemExit(f"{len(core.scheduler.running)} requests run instead of {_NUM_RUNNING}")
    ledger = TimedLedger(core.scheduler.ledger)
    in_ledger, in_steps, answers = [], [], []
    for index in range(_NUM_STEPS):
        ledger.seconds, began = 0.0, time.thread_time()
        core.step(clock.now())
        in_steps.append(time.thread_time() - began)
        # the first answer after a step: nothing that it needs was computed before
        newcomer = _request(f"new {index}", source.randint(*_PROMPT_TOKENS))
        began = time.thread_time()
        core.add(newcomer, clock.now())
        answers.append(time.thread_time() - began)
        in_ledger.append(ledger.seconds)
        core.abort([newcomer.request_id])
    return {
        "answer_p50_ms": 1e3 * statistics.median(answers),
        "answer_p99_ms": 1e3 * _p99(answers),
        "ledger_of_a_step_mean_ms": 1e3 * statistics.fmean(in_ledger),
        "ledger_of_a_step_p99_ms": 1e3 * _p99(in_ledger),
        "step_p50_ms": 1e3 * statistics.median(in_steps),
    }


def _p99(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=100)[-1]


def _request(request_id: str, num_prompt_tokens: int) -> AddRequest:
    seed = int(request_id) if request_id.isdecimal() else 0
    return AddRequest(
        client_id="benchmark",
        request_id=request_id,
        prompt_token_ids=[1] * num_prompt_tokens,
        sampling=SamplingParams(max_tokens=_MAX_TOKENS, seed=seed, stop_token_ids=(STOP_TOKEN,)),
    )
