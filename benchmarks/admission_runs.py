"""One replay of one case under one policy, and what it comes to.

Counted is the time from the end of the case's warm-up to the last arrival: neither an empty engine
nor one that runs dry. Replays go on until it is known which answers are good.

    goodput     tokens per second, in that time, of requests that were answered whole and met both
                objectives; a request's tokens come evenly between its first and its last
    throughput  the same of all requests
    preempted   preemptions / requests that began, in the whole replay
    recomputed  tokens computed again after a preemption / tokens computed
"""

import time
from dataclasses import dataclass

from benchmarks.admission_cases import Case
from benchmarks.admission_policies import POLICIES
from benchmarks.replay import Outcome, Replay


@dataclass(frozen=True, kw_only=True)
class Run:
    """Figures of one replay; times are virtual seconds."""

    case: str
    policy: str
    load: float
    """Arrivals as a multiple of the engine's capacity."""
    seed: int = 0
    requests_per_second: float
    num_requests: int
    goodput: float
    throughput: float
    goodput_share: float
    """Tokens of good answers / all tokens."""
    started_share: float
    late_first_tokens: int
    """Answers whose first token came too late."""
    slow_answers: int
    """Answers in time at first, then too slow."""
    preempted_share: float
    recomputed_share: float
    z: float
    """Where the safety margin stood at the end."""
    cpu_seconds: float


def measure(
    case: Case,
    policy: str,
    *,
    load: float,
    requests_per_second: float,
    seconds: float,
    seed: int = 0,
) -> Run:
    """Replay the warm-up and arrivals of so many seconds after it."""
    trace = case.traffic(requests_per_second, case.warm_up_seconds + seconds, seed=seed)
    began = time.thread_time()
    result = Replay(
        case.config(),
        trace,
        max_tokens=case.max_tokens,
        prepare=POLICIES[policy],
        hopeless_after_seconds=case.first_token_seconds,
    ).run()
    window = (case.warm_up_seconds, trace[-1].arrival_seconds)
    begun = [o for o in result.outcomes if o.first_token_at is not None]
    good = [o for o in begun if o.meets(case.first_token_seconds, case.per_token_seconds)]
    late = sum(1 for o in begun if o.first_token_seconds > case.first_token_seconds)
    good_tokens = sum(_num_tokens_within(window, o) for o in good)
    all_tokens = sum(_num_tokens_within(window, o) for o in begun)
    counters = result.core.scheduler.counters
    return Run(
        case=case.name,
        policy=policy,
        load=load,
        seed=seed,
        requests_per_second=requests_per_second,
        num_requests=len(trace),
        goodput=good_tokens / (window[1] - window[0]),
        throughput=all_tokens / (window[1] - window[0]),
        goodput_share=good_tokens / max(all_tokens, 1.0),
        started_share=len(begun) / len(trace),
        late_first_tokens=late,
        slow_answers=len(begun) - len(good) - late,
        preempted_share=counters.num_preemptions / max(len(begun), 1),
        recomputed_share=counters.num_recomputed_tokens / max(counters.num_scheduled_tokens, 1),
        z=result.core.scheduler.ledger.safety.z,
        cpu_seconds=time.thread_time() - began,
    )


def _num_tokens_within(window: tuple[float, float], outcome: Outcome) -> float:
    """Tokens that came within a time, as if evenly; those of unfinished answers count as one."""
    start, end = outcome.first_token_at or 0.0, outcome.ended_at
    if end is None or end == start:
        return outcome.num_received if window[0] <= start <= window[1] else 0.0
    overlap = min(end, window[1]) - max(start, window[0])
    return outcome.num_received * max(overlap, 0.0) / (end - start)


def measure_capacity(case: Case, seconds: float) -> float:
    """Return the requests per second that the engine answers well when far more arrive.

    Raises
    ------
    SystemExit
        The case's overload is none.
    """
    rate = case.overload_rate
    trace = case.traffic(rate, case.warm_up_seconds + seconds)
    run = measure(case, "quire", load=0.0, requests_per_second=rate, seconds=seconds)
    if run.started_share > 0.5:
        raise SystemExit(f"{case.name}: {rate} requests/s are no overload: raise its overload_rate")
    return run.goodput / (sum(r.num_output_tokens for r in trace) / len(trace))
