"""Traffic of a simulation: a recorded trace or a generated one, and what is odd about it.

poisson    chat at one mean rate, independent arrivals
bursty     the same rate, in bursts with gaps between them
diurnal    chat whose rate goes up and down, between a fifth and nine fifths of the mean: one day
shifting   chat that becomes documents with short answers, and then long answers
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Literal

from quire_engine.errors import ConfigError
from quire_engine.profiles.traces import (
    BadRow,
    TraceRequest,
    TraceRowError,
    multiply_rate,
    read_trace,
)
from quire_engine.profiles.traffic import (
    CHAT,
    DOCUMENTS,
    LengthMix,
    blend,
    generate_trace,
    generate_varying_trace,
    long_outputs,
)
from quire_local.words import counted, plain

Kind = Literal["poisson", "bursty", "diurnal", "shifting"]
KINDS: tuple[Kind, ...] = ("poisson", "bursty", "diurnal", "shifting")
_BURSTINESS = 3.0
_SWING = 0.8
_LONG_OUTPUT_TOKENS = 800
_MOST_REQUESTS = 5_000_000
_HOLE_SECONDS = 60.0
_HOLE_GAPS = 50.0
"""A gap so many times as long as the others on the mean is a hole."""
_MOST_TOLD = 3
_DAY_SECONDS = 86_400.0
_MOST_DAYS = 31
"""Scaling decides every 5 s, whether anything is asked or not: a month of nothing is an hour."""


@dataclass(frozen=True)
class Workload:
    """Requests, and what is to be said about them."""

    name: str
    trace: Sequence[TraceRequest]
    remarks: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.trace[-1].arrival_seconds - self.trace[0].arrival_seconds

    @property
    def requests_per_second(self) -> float:
        """On the mean."""
        return len(self.trace) / max(self.seconds, 1.0)


def read_workload(path: Path, *, skips_bad_rows: bool) -> Workload:
    """Read a recorded trace.

    Parameters
    ----------
    skips_bad_rows
        Leave rows out that are wrong, and say which, in place of an error.

    Raises
    ------
    ConfigError
        It cannot be read, or a row is wrong: the message names its line.
    """
    left_out: list[BadRow] | None = [] if skips_bad_rows else None
    try:
        trace = read_trace(path, left_out=left_out)
    except TraceRowError as error:
        raise ConfigError(f"{error}; or leave such rows out with --skip-bad-rows") from error
    remarks = []
    if left_out:
        told = "; ".join(row.reason for row in left_out[:_MOST_TOLD])
        more = f"; and {len(left_out) - _MOST_TOLD} more" if len(left_out) > _MOST_TOLD else ""
        are = "is" if len(left_out) == 1 else "are"
        remarks.append(f"{counted(len(left_out), 'row')} {are} wrong and left out: {told}{more}")
    return Workload(path.name, trace, remarks)


def generate_workload(
    kind: Kind, *, requests_per_second: float, seconds: float, seed: int
) -> Workload:
    """Draw traffic of a kind.

    Raises
    ------
    ConfigError
        The rate or the time is impossible, or it would be too much.
    """
    expected = requests_per_second * seconds
    if not (math.isfinite(expected) and expected >= 1):
        raise ConfigError(
            f"{plain(requests_per_second)} requests/s for {plain(seconds)} s are no traffic: raise"
            " --requests-per-second or --seconds"
        )
    if expected > _MOST_REQUESTS:
        raise ConfigError(
            f"{expected:.0f} requests are too many for one simulation: at most {_MOST_REQUESTS}"
        )
    random = Random(f"{kind} {seed}")
    name = f"{kind}, {plain(requests_per_second)} requests/s, seed {seed}"
    if kind in ("poisson", "bursty"):
        burstiness = _BURSTINESS if kind == "bursty" else 1.0
        trace = generate_trace(
            random,
            num_requests=round(expected),
            requests_per_second=requests_per_second,
            burstiness=burstiness,
        )
        return Workload(name, trace)
    rate, lengths = _profile(kind, requests_per_second, seconds)
    most = requests_per_second * (1 + _SWING if kind == "diurnal" else 1.0)
    varying = generate_varying_trace(
        random, seconds=seconds, rate=rate, most_per_second=most, lengths=lengths
    )
    return Workload(name, varying)


def _profile(
    kind: Kind, mean: float, seconds: float
) -> tuple[Callable[[float], float], Callable[[float], LengthMix]]:
    """Rate and lengths by time."""
    if kind == "diurnal":
        turn = 2 * math.pi / seconds
        return lambda now: mean * (1.0 - _SWING * math.cos(turn * now)), lambda _: CHAT
    return lambda _: mean, lambda now: _shift(now / seconds)


def _shift(progress: float) -> LengthMix:
    """Chat for a fifth, documents in the middle, long answers in the last fifth."""
    to_documents = min(max((progress - 0.2) / 0.2, 0.0), 1.0)
    to_long = min(max((progress - 0.6) / 0.2, 0.0), 1.0)
    if to_long > 0:
        return blend(DOCUMENTS, long_outputs(_LONG_OUTPUT_TOKENS), to_long)
    return blend(CHAT, DOCUMENTS, to_documents)


def prepare(
    workload: Workload, *, times: float, seconds: float | None, max_model_len: int, seed: int
) -> Workload:
    """Multiply, cut and check a workload for a model.

    Parameters
    ----------
    times
        So many times as many requests, in the same time.
    seconds
        Only what arrives until then; None: all.
    max_model_len
        Requests that are longer get an error from any engine: they are left out, and said.

    Raises
    ------
    ConfigError
        Nothing is left.
    """
    trace = list(workload.trace)
    if seconds is not None:
        trace = [one for one in trace if one.arrival_seconds <= seconds]
    if times != 1.0:
        trace = multiply_rate(trace, times, Random(f"times {times} {seed}"))
    fitting = [
        one for one in trace if one.num_prompt_tokens + one.num_output_tokens <= max_model_len
    ]
    remarks = [*workload.remarks]
    if num_long := len(trace) - len(fitting):
        remarks.append(
            f"{num_long} of {counted(len(trace), 'request')} {'is' if num_long == 1 else 'are'}"
            f" longer than {counted(max_model_len, 'token')} and left out: no engine of this model"
            " takes so many"
        )
    if not fitting:
        raise ConfigError(f"no request of {workload.name} fits {counted(max_model_len, 'token')}")
    remarks += describe_holes(fitting)
    name = workload.name if times == 1.0 else f"{workload.name}, {plain(times)} times"
    return Workload(name, fitting, remarks)


def check_length(workload: Workload) -> None:
    """Refuse what would be simulated for hours.

    Raises
    ------
    ConfigError
        It is too long.
    """
    days = workload.trace[-1].arrival_seconds / _DAY_SECONDS
    if days > _MOST_DAYS:
        holes = "; ".join(describe_holes(workload.trace))
        raise ConfigError(
            f"{workload.name} lasts {days:.0f} days, and {_MOST_DAYS} can be simulated: take its"
            f" beginning with --seconds 1h, or use quire plan{f' ({holes})' if holes else ''}"
        )


def describe_holes(trace: Sequence[TraceRequest]) -> list[str]:
    """Say where nothing arrives for long: a recorder may have been off."""
    span = trace[-1].arrival_seconds - trace[0].arrival_seconds
    if len(trace) > 1 and span == 0:
        return [f"all {len(trace)} requests arrive at one moment"]
    num_others = len(trace) - 2
    holes = [
        (before.arrival_seconds, gap)
        for before, after in pairwise(trace)
        if (gap := after.arrival_seconds - before.arrival_seconds) >= _HOLE_SECONDS
        and num_others
        and gap >= _HOLE_GAPS * (span - gap) / num_others
    ]
    if not holes:
        return []
    at, longest = max(holes, key=lambda hole: hole[1])
    remark = (
        f"{counted(len(holes), 'hole')} without any request; the longest is {longest:.0f} s from"
        f" second {at:.0f} on, and is simulated as no traffic"
    )
    return [remark]
