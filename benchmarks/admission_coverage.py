"""Whether predicted occupancy comes true, within the deviations that it states.

Counted is how often what a set of running requests really holds later lies within mean +- z sigma,
at horizons where some are still expected to run. Nominal is what a normal distribution has there.

Survival alone, learnt from some requests of the chat trace and held against groups of others that
are caught at a random moment of their answers:

    shuffled        every other request, outputs dealt anew to the prompts: the assumptions hold,
                    so this checks the mathematics
    even, odd       every other request
    frozen_earlier, frozen_later    one half of the time, from the other half alone: what an engine
                    would be worth that stopped learning while traffic drifts; no target

The ledger itself, all it learns included, while real engines are replayed at their capacity:

    earlier, later  one half of the time, after the other
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import erf, sqrt

from benchmarks.admission_cases import CASES, Case, chat_trace
from benchmarks.replay import Replay
from quire_engine.core.engine import EngineCore
from quire_engine.profiles.output_length_by_prompt import OutputLengthByPrompt
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.cost import HORIZONS, OccupancyCurve, predict_occupancy

_BLOCK_SIZE = 16
_MAX_TOKENS = 2000
_NUM_GROUPS = 1500
_GROUP_SIZE = 64
_NUM_REMEMBERED = 10_000
"""Older ones have faded."""
_MIN_ALIVE = 8.0
"""Fewer that still run are no normal distribution."""
_Z = (1.0, 2.0)
_LIVE_CASES = {"chat-l4": 1.5, "chat-a100": 12.0}
"""Requests per second at which the chat trace is replayed: about the capacity."""
_LOOKS_PER_REQUEST = 0.25

Requests = Sequence[TraceRequest]


@dataclass(slots=True)
class Coverage:
    """Counts how many predictions hold."""

    num_points: int = 0
    inside: dict[float, int] = field(default_factory=lambda: dict.fromkeys(_Z, 0))

    def count(self, errors: Iterable[float]) -> None:
        """Count predictions by their errors in standard deviations."""
        for error in errors:
            self.num_points += 1
            for z in _Z:
                self.inside[z] += error <= z

    def figures(self, name: str) -> dict[str, float]:
        """Return the share within each z, and the largest distance from nominal."""
        shares = {z: inside / max(self.num_points, 1) for z, inside in self.inside.items()}
        worst = max(abs(share - erf(z / sqrt(2))) for z, share in shares.items())
        return {
            **{f"coverage_{name}_z{z:g}": share for z, share in shares.items()},
            f"coverage_{name}_error": worst,
        }


def measure_coverage() -> dict[str, float]:
    """Return all shares, and the largest error of those that have a target."""
    trace = chat_trace()
    middle = len(trace) // 2
    dealt = _deal_outputs(trace)
    figures = {
        **_cover(dealt[1::2], dealt[::2]).figures("shuffled"),
        **_cover(trace[1::2], trace[::2]).figures("even"),
        **_cover(trace[::2], trace[1::2]).figures("odd"),
    }
    for name, rate in _LIVE_CASES.items():
        case = next(case for case in CASES if case.name == name)
        for half, coverage in zip(("earlier", "later"), _cover_live(case, rate), strict=True):
            figures |= coverage.figures(f"{name}_{half}")
    worst = max(value for key, value in figures.items() if key.endswith("_error"))
    return {
        **figures,
        **_cover(trace[middle:], trace[:middle]).figures("frozen_earlier"),
        **_cover(trace[:middle], trace[middle:]).figures("frozen_later"),
        "coverage_error_max": worst,
    }


def _deal_outputs(trace: Requests) -> list[TraceRequest]:
    outputs = [request.num_output_tokens for request in trace]
    random.Random(0).shuffle(outputs)
    return [
        TraceRequest(request.arrival_seconds, request.num_prompt_tokens, output)
        for request, output in zip(trace, outputs, strict=True)
    ]


def _cover(learnt: Requests, tried: Requests) -> Coverage:
    """Learn survival from some requests, and predict groups of others."""
    source, coverage = random.Random(0), Coverage()
    lengths = OutputLengthByPrompt()
    for request in learnt[-_NUM_REMEMBERED:]:
        lengths.add(
            request.num_prompt_tokens,
            request.num_output_tokens,
            ended=True,
            number=lengths.begin(),
        )
    lengths.refresh(())
    # at any moment, long answers are more likely to be among those that run
    weights = [request.num_output_tokens for request in tried]
    for _ in range(_NUM_GROUPS):
        group = [
            (request, source.randrange(request.num_output_tokens))
            for request in source.choices(tried, weights, k=_GROUP_SIZE)
        ]
        coverage.count(_errors(_predict(lengths, group), group))
    return coverage


Group = Sequence[tuple[TraceRequest, int]]
"""Requests that run, and how many tokens each has generated."""


def _predict(lengths: OutputLengthByPrompt, group: Group) -> OccupancyCurve:
    return OccupancyCurve(
        predict_occupancy(
            private_tokens=request.num_prompt_tokens + num_generated,
            block_size=_BLOCK_SIZE,
            num_generated=num_generated,
            max_remaining_tokens=_MAX_TOKENS - num_generated,
            survival=lengths.curve(request.num_prompt_tokens).survival,
        )
        for request, num_generated in group
    )


def _errors(predicted: OccupancyCurve, group: Group) -> Iterator[float]:
    """Yield the error at each horizon, in standard deviations."""
    for index, ahead in enumerate(HORIZONS[1:], 1):
        if predicted.alive[index] < _MIN_ALIVE:
            return
        real = sum(_num_blocks(request, done, ahead) for request, done in group)
        sigma = sqrt(predicted.variance[index])
        yield abs(real - predicted.mean[index]) / sigma


def _num_blocks(request: TraceRequest, num_generated: int, ahead: int) -> int:
    if request.num_output_tokens <= num_generated + ahead:
        return 0
    return -(-(request.num_prompt_tokens + num_generated + ahead) // _BLOCK_SIZE)


def _cover_live(case: Case, requests_per_second: float) -> tuple[Coverage, Coverage]:
    """Replay later half, earlier half, later half; look at the ledger in the last two."""
    num_requests = len(chat_trace())
    once = case.traffic(requests_per_second, num_requests / requests_per_second)
    middle, period = num_requests // 2, once[-1].arrival_seconds + 1 / requests_per_second
    thrice = [_delayed(r, period * lap) for lap in (0, 1) for r in once][middle:]
    halves = (Coverage(), Coverage())
    last_is_later = thrice[num_requests].arrival_seconds
    next_look = thrice[num_requests - middle].arrival_seconds

    def look(core: EngineCore, now: float) -> None:
        nonlocal next_look
        if now < next_look:
            return
        next_look = now + 1 / (_LOOKS_PER_REQUEST * requests_per_second)
        scheduler = core.scheduler
        group = [
            (thrice[int(r.request_id)], len(r.token_ids) - r.num_prompt_tokens)
            for r in scheduler.running
        ]
        curve = scheduler.ledger.curve(scheduler.roster.num_lacking_blocks())
        halves[now > last_is_later].count(_errors(curve, group))

    Replay(case.config(), thrice, max_tokens=_MAX_TOKENS, watch=look).run()
    return halves


def _delayed(request: TraceRequest, seconds: float) -> TraceRequest:
    return TraceRequest(
        request.arrival_seconds + seconds, request.num_prompt_tokens, request.num_output_tokens
    )
