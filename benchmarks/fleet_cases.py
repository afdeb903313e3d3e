"""Fleets, their objectives and their traffic."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from benchmarks.admission_cases import Case, chat_trace
from benchmarks.fleet_routers import Job
from benchmarks.replay import Replay
from quire_engine.profiles.traces import TraceRequest

_MAX_MODEL_LEN = 8192
_NUM_PARTS = 8
"""Of the trace: so many seeds differ."""
_OVERLOAD = 1.25
_NUM_TRIALS = 4
CHUNK_TOKENS = 256
"""A gateway's chunk of text, about."""
_GUESS_SIGMA = 0.15
"""Of the logarithm of how wrong a gateway is about a prompt's tokens."""


@dataclass(frozen=True, kw_only=True)
class FleetCase:
    """Engines of several kinds behind one URL."""

    name: str
    shape: str
    engines: Mapping[str, int]
    """Number of each GPU."""
    first_token_seconds: float
    per_token_seconds: float
    first_guesses: Mapping[str, float]
    """Of each GPU's requests per second."""
    warm_up_seconds: float
    span_seconds: float
    num_seeds: int = 8
    max_tokens: int = 2000

    def engine_case(self, gpu: str) -> Case:
        """One of the engines alone."""
        return Case(
            name=f"{self.name}-{gpu}",
            binds="",
            gpu=gpu,
            shape=self.shape,
            first_token_seconds=self.first_token_seconds,
            per_token_seconds=self.per_token_seconds,
            max_tokens=self.max_tokens,
            max_model_len=_MAX_MODEL_LEN,
            overload_rate=self.first_guesses[gpu],
            warm_up_seconds=self.warm_up_seconds,
            span_seconds=self.span_seconds,
        )

    def capacity(self) -> float:
        """Return the requests per second that all engines together answer well, each alone."""
        return sum(count * self.capacity_of(gpu) for gpu, count in self.engines.items())

    def capacity_of(self, gpu: str) -> float:
        """Return the requests per second that one of them answers well."""
        return _capacity(self.name, gpu)

    def jobs(self, requests_per_second: float, seed: int) -> list[Job]:
        """Return the clients' requests, in the order of arrival."""
        seconds = self.warm_up_seconds + self.span_seconds
        chance = random.Random(seed)
        jobs = []
        for number, request in enumerate(traffic(requests_per_second, seconds, seed)):
            num_tokens = min(request.num_prompt_tokens, _MAX_MODEL_LEN // 2)
            num_chunks = min(-(-num_tokens // CHUNK_TOKENS), 64)
            jobs.append(
                Job(
                    number=number,
                    arrival=request.arrival_seconds,
                    prompt=[1] * num_tokens,
                    num_output_tokens=request.num_output_tokens,
                    max_tokens=max(self.max_tokens, request.num_output_tokens),
                    guessed_prompt_tokens=round(
                        num_tokens * chance.lognormvariate(0.0, _GUESS_SIGMA)
                    ),
                    chunks=tuple(chance.getrandbits(64) for _ in range(num_chunks)),
                )
            )
        return jobs


def traffic(requests_per_second: float, seconds: float, seed: int) -> list[TraceRequest]:
    """A part of the chat trace, by seed another one, at this mean rate in this part."""
    source = chat_trace()
    count = max(round(requests_per_second * seconds), 1)
    first = seed * len(source) // _NUM_PARTS
    lap = source[-1].arrival_seconds * len(source) / (len(source) - 1)
    part = []
    for index in range(first, first + count + 1):
        laps, position = divmod(index, len(source))
        part.append((laps * lap + source[position].arrival_seconds, source[position]))
    begins, factor = part[0][0], seconds / (part[-1][0] - part[0][0])
    return [
        TraceRequest((at - begins) * factor, one.num_prompt_tokens, one.num_output_tokens)
        for at, one in part[:-1]
    ]


@cache
def _capacity(case_name: str, gpu: str) -> float:
    """Requests per second that one engine answers well of a quarter more.

    Far more would let it choose the short prompts among them.
    """
    fleet = next(one for one in CASES if one.name == case_name)
    case = fleet.engine_case(gpu)
    capacity = case.overload_rate
    for _ in range(_NUM_TRIALS):
        capacity = _measure_good(case, _OVERLOAD * capacity)
    return capacity


def _measure_good(case: Case, rate: float) -> float:
    seconds = case.warm_up_seconds + case.span_seconds
    trace = traffic(rate, seconds, 0)
    limit = case.first_token_seconds
    result = Replay(
        case.config(), trace, max_tokens=case.max_tokens, hopeless_after_seconds=limit
    ).run()
    good = [
        one
        for one in result.outcomes
        if one.arrival >= case.warm_up_seconds and one.meets(limit, case.per_token_seconds)
    ]
    return len(good) / case.span_seconds


CASES = (
    FleetCase(
        name="mixed",
        shape="llama3-8b",
        engines={"l4": 4, "a100-80": 1, "h100": 1},
        first_token_seconds=4.0,
        per_token_seconds=0.15,
        first_guesses={"l4": 1.5, "a100-80": 11.0, "h100": 20.0},
        warm_up_seconds=30.0,
        span_seconds=60.0,
    ),
    FleetCase(
        name="seats",
        shape="qwen3-0.6b",
        engines={"h100": 2, "a100-80": 1, "l4": 1},
        first_token_seconds=2.0,
        per_token_seconds=0.06,
        first_guesses={"h100": 60.0, "a100-80": 38.0, "l4": 9.0},
        warm_up_seconds=10.0,
        span_seconds=20.0,
    ),
)
