"""Figures of a simulation.

attainment   share of the requests that were answered whole, with the first token in time and
             tokens as fast as promised, on the mean of the answer; refused ones are not
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from quire_local.simulate.hardware import ServiceLevel
from quire_local.simulate.jobs import Fate, Job

WINDOW_SECONDS = 60.0
"""Attainment over time is told for so long at a time."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """How things were at one moment."""

    at: float
    ready: Mapping[str, int]
    coming: Mapping[str, int]
    """Ordered and not ready, by type."""
    dollars_per_hour: float
    num_waiting: int
    num_running: int
    pressure: float
    """Mean of the ready replicas."""
    worst_pressure: float
    binding: str
    """Which term that is, of the replica nearest to its limits."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A change that a scaler made."""

    at: float
    replicas: Mapping[str, int]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that broke, or was whole again."""

    at: float
    what: str
    """In words, with how many replicas it met."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Requests that arrived within a time."""

    at: float
    num_requests: int
    attainment: float


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """What came of one scaler with one trace; seconds are virtual."""

    scaler: str
    seed: int
    num_requests: int
    seconds: float
    """From the first arrival to the last answer."""
    dollars: float
    dollars_per_hour: float
    num_output_tokens: int
    """Of all answers that came whole."""
    dollars_per_million_output_tokens: float | None
    """Dollars of the whole run for so many of these tokens; None where nothing was answered."""
    attainment: float
    first_token_attainment: float
    """Share of all requests with the first token in time."""
    per_token_attainment: float
    """Share of the answered ones with tokens as fast as promised."""
    percentile: int
    """Of how many percent of the requests is promised."""
    meets_slo: bool
    """Whether so many were answered as promised."""
    first_token_seconds: float | None
    """At the promised percentile, of all requests; None where so many got none."""
    per_token_seconds: float | None
    """At the promised percentile, of the answered ones; None without any."""
    tokens_per_second: float
    num_refused: int
    num_lost: int
    """Engines died with them after the first token."""
    num_lost_to_drain: int
    """They were still running when their replica's time to drain was over."""
    num_preemptions: int
    num_changes: int
    """Replicas added or taken away by decisions."""
    changes_per_hour: float
    num_deaths: int
    replica_hours: Mapping[str, float]
    answered_by: Mapping[str, int]
    refusals: Mapping[str, int]
    samples: Sequence[Sample]
    decisions: Sequence[Decided]
    faults: Sequence[Fault]
    windows: Sequence[Window]


def attainment(jobs: Sequence[Job], slo: ServiceLevel) -> float:
    """Share of good requests; 1 without any."""
    return sum(job.is_good(slo) for job in jobs) / len(jobs) if jobs else 1.0


def first_token_attainment(jobs: Sequence[Job], slo: ServiceLevel) -> float:
    """Share of all requests whose first token came in time."""
    if not jobs:
        return 1.0
    return sum(job.first_token_seconds <= slo.first_token_seconds for job in jobs) / len(jobs)


def per_token_attainment(jobs: Sequence[Job], slo: ServiceLevel) -> float:
    """Share of the answered requests whose tokens came as fast as promised."""
    answered = [job for job in jobs if job.fate is Fate.ANSWERED]
    if not answered:
        return 1.0
    return sum(job.per_token_seconds <= slo.per_token_seconds for job in answered) / len(answered)


def quantile(values: Sequence[float], percentile: int) -> float | None:
    """The value that so many percent do not exceed; None where that is infinite."""
    if not values:
        return None
    value = sorted(values)[max(ceil(percentile / 100 * len(values)) - 1, 0)]
    return None if value == inf else value


def split_windows(jobs: Sequence[Job], slo: ServiceLevel) -> list[Window]:
    """Attainment by time of arrival."""
    by_window: dict[int, list[Job]] = {}
    for job in jobs:
        by_window.setdefault(int(job.arrival // WINDOW_SECONDS), []).append(job)
    return [
        Window(
            at=index * WINDOW_SECONDS,
            num_requests=len(of_window),
            attainment=attainment(of_window, slo),
        )
        for index, of_window in sorted(by_window.items())
    ]


def count_refusals(jobs: Sequence[Job]) -> dict[str, int]:
    """Refused requests by reason."""
    return dict(Counter(job.refusal for job in jobs if job.fate is Fate.REFUSED))


def count_answers(jobs: Sequence[Job]) -> dict[str, int]:
    """Answered requests by the type that answered."""
    return dict(Counter(job.engine_type for job in jobs if job.fate is Fate.ANSWERED))
