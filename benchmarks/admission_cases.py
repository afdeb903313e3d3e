"""What admission is measured on: engines, objectives and traffic, each bound by something else."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.profiles.traces import TraceRequest, read_trace
from quire_engine.profiles.traffic import (
    CHAT,
    LengthMix,
    LogNormal,
    generate_trace,
    long_outputs,
)

LONG_PROMPTS = LengthMix(
    prompts=(LogNormal(1.0, 6000, 0.5),), outputs=(LogNormal(1.0, 60, 0.5),), max_output_tokens=400
)
"""Documents with short answers: means of about 6,700 prompt and 68 output tokens."""

_NUM_GENERATED = 20_000
_NUM_BEGINNINGS = 8
"""Of a recorded trace: so many seeds differ."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An engine, its objectives and its traffic."""

    name: str
    binds: str
    """What runs out first, for people."""
    gpu: str
    shape: str
    first_token_seconds: float
    per_token_seconds: float
    lengths: LengthMix | None = None
    """None for the chat trace."""
    max_tokens: int = 2000
    """What every client asks for."""
    max_model_len: int = 16_384
    overload_rate: float
    """Requests per second that are far too many: there capacity is measured."""
    warm_up_seconds: float
    """Arrivals before are not counted: an engine that is empty serves anyone."""
    span_seconds: float
    """Of the arrivals that count."""
    num_seeds: int = 1
    """Traces that are replayed: more where chance decides between policies."""

    def config(self) -> EngineConfig:
        """Return the engine; prompts are all alike, so prefixes are not cached."""
        return EngineConfig(
            model=ModelConfig(max_model_len=self.max_model_len),
            cache=CacheConfig(enable_prefix_caching=False),
            scheduler=SchedulerConfig(max_num_seqs=256, max_num_batched_tokens=8192),
            admission=AdmissionConfig(
                slo_time_to_first_token=self.first_token_seconds,
                slo_time_per_output_token=self.per_token_seconds,
            ),
            executor=ExecutorConfig(simulate=self.gpu, model_shape=self.shape),
        )

    def traffic(
        self, requests_per_second: float, seconds: float, *, seed: int = 0
    ) -> list[TraceRequest]:
        """Return requests that arrive within so many seconds at this mean rate.

        Parameters
        ----------
        seed
            Of generated traffic; of a recorded trace, which eighth of it comes first.
        """
        source = _requests_like(self.lengths, seed)
        recorded_rate = (len(source) - 1) / source[-1].arrival_seconds
        count = max(round(requests_per_second * seconds), 1)
        factor = requests_per_second / recorded_rate
        period = source[-1].arrival_seconds + 1 / recorded_rate
        trace = []
        for index in range(count):
            lap, position = divmod(index, len(source))
            request = source[position]
            arrival = (lap * period + request.arrival_seconds) / factor
            trace.append(
                TraceRequest(arrival, request.num_prompt_tokens, request.num_output_tokens)
            )
        return trace


def chat_trace() -> Sequence[TraceRequest]:
    """Return the trace that QUIRE_TRACE names, or else a generated one."""
    return _requests_like(None, 0)


def name_of_trace() -> str:
    """Return what to call the chat trace in reports."""
    path = os.environ.get("QUIRE_TRACE")
    return Path(path).name if path else "generated chat, seed 0"


@cache
def _requests_like(lengths: LengthMix | None, seed: int) -> Sequence[TraceRequest]:
    path = os.environ.get("QUIRE_TRACE")
    if lengths is None and path:
        return _begun_at(read_trace(path), seed / _NUM_BEGINNINGS)
    return generate_trace(
        random.Random(seed),
        num_requests=_NUM_GENERATED,
        requests_per_second=1.0,
        lengths=lengths or CHAT,
    )


def _begun_at(trace: Sequence[TraceRequest], share: float) -> Sequence[TraceRequest]:
    """Let a recorded trace begin after a share of its requests, which come at its end instead."""
    first = round(share % 1.0 * len(trace))
    begins = trace[first].arrival_seconds
    period = trace[-1].arrival_seconds * len(trace) / (len(trace) - 1)
    moved = [(request, -begins) for request in trace[first:]]
    moved += [(request, period - begins) for request in trace[:first]]
    return [
        TraceRequest(r.arrival_seconds + offset, r.num_prompt_tokens, r.num_output_tokens)
        for r, offset in moved
    ]


CASES = (
    Case(
        name="chat-l4",
        binds="blocks",
        gpu="l4",
        shape="llama3.1-8b",
        # bf16 weights of 8B take 53 ms to read on an L4: 60 ms a token cannot be promised there
        first_token_seconds=4.0,
        per_token_seconds=0.15,
        overload_rate=8.0,
        warm_up_seconds=100.0,
        span_seconds=200.0,
        num_seeds=6,
    ),
    Case(
        name="chat-a100",
        binds="step time",
        gpu="a100-80",
        shape="llama3.1-8b",
        first_token_seconds=2.0,
        per_token_seconds=0.06,
        overload_rate=60.0,
        warm_up_seconds=40.0,
        span_seconds=60.0,
    ),
    Case(
        name="long1350-a100",
        binds="blocks",
        gpu="a100-80",
        shape="llama3.1-8b",
        first_token_seconds=2.0,
        per_token_seconds=0.06,
        lengths=long_outputs(1350),
        max_tokens=16_000,
        max_model_len=32_768,
        overload_rate=8.0,
        warm_up_seconds=200.0,
        span_seconds=200.0,
        num_seeds=3,
    ),
    Case(
        name="long4000-a100",
        binds="blocks",
        gpu="a100-80",
        shape="llama3.1-8b",
        first_token_seconds=2.0,
        per_token_seconds=0.06,
        lengths=long_outputs(4000),
        max_tokens=24_000,
        max_model_len=32_768,
        overload_rate=3.0,
        warm_up_seconds=500.0,
        # an answer takes minutes: in a shorter time, chance decides between policies
        span_seconds=1200.0,
        num_seeds=4,
    ),
    Case(
        name="seats-h100",
        binds="seats",
        gpu="h100",
        shape="qwen3-0.6b",
        first_token_seconds=2.0,
        per_token_seconds=0.06,
        overload_rate=250.0,
        warm_up_seconds=15.0,
        span_seconds=20.0,
    ),
    Case(
        name="prompts-a100",
        binds="prefill",
        gpu="a100-80",
        shape="llama3.1-8b",
        first_token_seconds=4.0,
        per_token_seconds=0.1,
        lengths=LONG_PROMPTS,
        overload_rate=10.0,
        warm_up_seconds=60.0,
        span_seconds=140.0,
    ),
)
