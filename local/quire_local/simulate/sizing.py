"""What a trace takes of GPUs, by the operator's own capacity model and its own program.

oracle   the cheapest mix of each window, as if it were known and there at once: no scaler can
         cost less at the same target, but for luck within a window
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from quire_engine.profiles.traces import TraceRequest
from quire_gateway.serving.arrivals import OUTPUT_BOUNDS, PROMPT_BOUNDS
from quire_local.simulate.hardware import (
    BLOCK_SIZE,
    MAX_NUM_BATCHED_TOKENS,
    MAX_NUM_SEQS,
    EngineType,
    Limits,
    ServiceLevel,
)
from quire_operator.scaling import inputs
from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.capacity import Capacity, Incapable, capacity
from quire_operator.scaling.loads import Loads
from quire_operator.scaling.mix import Bounds, Mix, Option
from quire_operator.scaling.ways import all_ways, choose_of

WINDOW_SECONDS = 300.0
MOST_REPLICAS = 10_000
ACCEPTED = 0.01
"""A type may leave so many of the requests unserved, the longest ones, and still do it alone."""


@dataclass(frozen=True, kw_only=True)
class SizedWindow:
    """The cheapest mix for a part of a trace."""

    at: float
    seconds: float
    replicas: Mapping[str, int]
    dollars_per_hour: float
    requests_per_second: float
    output_tokens_per_second: float
    """Of the requests that are served."""
    unserved: float
    """Part of the requests that no type serves within the promises."""
    loads: Mapping[str, float]
    """Of each type's replicas; 1 is the target."""

    @property
    def dollars(self) -> float:
        """What it costs."""
        return self.dollars_per_hour * self.seconds / 3600


def capability(kind: EngineType) -> inputs.Capability:
    """What a type can do, as the operator knows it before any engine has run."""
    return inputs.Capability(
        step_time=kind.step_time,
        num_blocks=kind.num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=MAX_NUM_SEQS,
        max_step_tokens=MAX_NUM_BATCHED_TOKENS,
    )


def promises(slo: ServiceLevel) -> inputs.ServiceLevel:
    """The objectives, as the operator has them."""
    return inputs.ServiceLevel(
        first_token_seconds=slo.first_token_seconds,
        per_token_seconds=slo.per_token_seconds,
        percentile=slo.percentile,
    )


def split_by_length(trace: Sequence[TraceRequest], seconds: float) -> list[Bucket]:
    """Requests per second in the gateways' buckets, each at its mean lengths."""
    by_bucket: dict[tuple[int, int], list[TraceRequest]] = {}
    for one in trace:
        row = bisect_left(PROMPT_BOUNDS, one.num_prompt_tokens)
        column = bisect_left(OUTPUT_BOUNDS, one.num_output_tokens)
        by_bucket.setdefault((row, column), []).append(one)
    return [_bucket(of_bucket, seconds) for _, of_bucket in sorted(by_bucket.items())]


def _bucket(requests: Sequence[TraceRequest], seconds: float) -> Bucket:
    prompt = sum(one.num_prompt_tokens for one in requests) / len(requests)
    output = sum(one.num_output_tokens for one in requests) / len(requests)
    return Bucket(
        prompt_tokens=prompt,
        output_tokens=output,
        prefill_tokens=prompt,
        rate=len(requests) / seconds,
    )


def measure_capacity(
    kind: EngineType, mix: Sequence[Bucket], slo: ServiceLevel, limits: Limits
) -> Capacity | Incapable:
    """What one replica of a type does of a mix."""
    target, admission = limits.target, limits.admission
    return capacity(capability(kind), None, mix, promises(slo), target, admission)


def size(
    types: Sequence[EngineType],
    buckets: Sequence[Bucket],
    slo: ServiceLevel,
    *,
    limits: Limits,
    most_replicas: int = MOST_REPLICAS,
    fewest_replicas: int = 1,
) -> Mix:
    """Return the cheapest replicas for these rates.

    Requests that some type cannot serve, if they are a hundredth of all at most, count for nothing:
    the operator, too, buys no dear type for them.
    """
    options, quick = [], {}
    for kind in types:
        found = measure_capacity(kind, buckets, slo, limits)
        loads = found.loads if isinstance(found, Capacity) else Loads.none(len(buckets))
        quick[kind.name] = found.quick_loads if isinstance(found, Capacity) else loads
        highest = min(kind.num_nodes, most_replicas)
        # nothing has to move: as if all were there
        options.append(
            Option(
                name=kind.name,
                cost=kind.dollars_per_hour,
                loads=loads,
                highest=highest,
                current=highest,
            )
        )
    bounds = Bounds(fewest=fewest_replicas, most=most_replicas)
    rates = [one.rate for one in buckets]
    for index in _rare(options, rates):
        rates[index] = 0.0
    return choose_of(all_ways(options, quick), rates, bounds)


def _rare(options: Sequence[Option], rates: Sequence[float]) -> list[int]:
    """Buckets that some type cannot serve, and that are too few to buy another one for."""
    left = ACCEPTED * sum(rates)
    rare = []
    for index in sorted(range(len(rates)), key=lambda index: rates[index]):
        if all(one.loads.are_served[index] for one in options):
            continue
        left -= rates[index]
        if left < 0:
            break
        rare.append(index)
    return rare


def count_unserved(mix: Mix, buckets: Sequence[Bucket]) -> float:
    """Part of the requests that a mix does not serve."""
    total = sum(one.rate for one in buckets)
    return 1.0 - sum(_served_rates(mix, buckets)) / total if total > 0 else 0.0


def count_output_tokens(mix: Mix, buckets: Sequence[Bucket]) -> float:
    """Output tokens per second of the requests that a mix serves."""
    rates = _served_rates(mix, buckets)
    return sum(rate * one.output_tokens for rate, one in zip(rates, buckets, strict=True))


def _served_rates(mix: Mix, buckets: Sequence[Bucket]) -> list[float]:
    """Requests per second of each bucket that a mix serves."""
    return [
        one.rate * min(sum(parts[index] for parts in mix.shares.values()), 1.0)
        for index, one in enumerate(buckets)
    ]


def size_windows(
    trace: Sequence[TraceRequest],
    types: Sequence[EngineType],
    slo: ServiceLevel,
    *,
    limits: Limits,
    window_seconds: float = WINDOW_SECONDS,
    progress: Callable[[float], None] = lambda _: None,
) -> list[SizedWindow]:
    """Return the cheapest mix of each window.

    Without a request it is one replica of the cheapest; empty windows in a row are one.

    Parameters
    ----------
    progress
        Called with the share of the time that is sized.
    """
    span = trace[-1].arrival_seconds
    by_window: dict[int, list[TraceRequest]] = {}
    for one in trace:
        by_window.setdefault(int(one.arrival_seconds // window_seconds), []).append(one)
    full = sorted(by_window)
    starts = sorted({*full, *(index + 1 for index in full[:-1])})
    windows = []
    for index, following in pairwise([*starts, full[-1] + 1]):
        at = index * window_seconds
        seconds = max(min(following * window_seconds, span) - at, 1.0)
        arrived = by_window.get(index, [])
        buckets = split_by_length(arrived, seconds)
        mix = size(types, buckets, slo, limits=limits)
        windows.append(
            SizedWindow(
                at=at,
                seconds=seconds,
                replicas=mix.replicas,
                dollars_per_hour=mix.cost,
                requests_per_second=len(arrived) / seconds,
                output_tokens_per_second=count_output_tokens(mix, buckets),
                unserved=count_unserved(mix, buckets),
                loads=mix.loads,
            )
        )
        progress(min(following / (full[-1] + 1), 1.0))
    return windows


def served_share(windows: Sequence[SizedWindow]) -> float:
    """Part of all requests that are served as promised."""
    asked = sum(one.requests_per_second * one.seconds for one in windows)
    unserved = sum(one.unserved * one.requests_per_second * one.seconds for one in windows)
    return 1.0 - unserved / asked if asked else 1.0


def choose_single(
    trace: Sequence[TraceRequest],
    types: Sequence[EngineType],
    slo: ServiceLevel,
    *,
    limits: Limits,
    accepted: float = ACCEPTED,
) -> EngineType:
    """Return the type that serves the trace alone at the least cost, sized anew for each window.

    Of those that leave at most `accepted` of the requests unserved, if there are any.
    """

    def rank(kind: EngineType) -> tuple[float, float]:
        windows = size_windows(trace, [kind], slo, limits=limits)
        unserved = 1.0 - served_share(windows)
        return max(unserved - accepted, 0.0), sum(one.dollars for one in windows)

    return min(types, key=rank)
