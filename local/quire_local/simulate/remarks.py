"""What is to be said before a simulation: what was asked for and will not be."""

import argparse
from collections.abc import Sequence

from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel
from quire_local.simulate.sizing import measure_capacity, split_by_length
from quire_local.simulate.workload import Workload
from quire_operator.scaling.capacity import Capacity


def remark_on(
    parsed: argparse.Namespace, types: Sequence[EngineType], workload: Workload
) -> list[str]:
    """Bounds and faults that contradict each other, or of which nothing comes."""
    return [
        *_remark_on_cost(parsed, types),
        *_remark_on_fixed(parsed, types),
        *_remark_on_events(parsed, workload),
    ]


def remark_on_promises(
    workload: Workload, types: Sequence[EngineType], slo: ServiceLevel, limits: Limits
) -> list[str]:
    """Where no type keeps the promises for any of the requests."""
    buckets = split_by_length(workload.trace, max(workload.seconds, 1.0))
    found = {one.name: measure_capacity(one, buckets, slo, limits) for one in types}
    if any(isinstance(one, Capacity) for one in found.values()):
        return []
    reasons = "; ".join(
        f"{name}: {one.reason}" for name, one in found.items() if not isinstance(one, Capacity)
    )
    return [f"no GPU serves any of these requests as promised: {reasons}"]


def _remark_on_cost(parsed: argparse.Namespace, types: Sequence[EngineType]) -> list[str]:
    """Where the money does not pay for the fewest replicas."""
    most = parsed.max_cost_per_hour
    cheapest = min(types, key=lambda one: one.dollars_per_hour)
    if most is None or most >= parsed.min_replicas * cheapest.dollars_per_hour:
        return []
    number = int(most / cheapest.dollars_per_hour) if cheapest.dollars_per_hour > 0 else 0
    paid = f"{number} on {cheapest.name}, the cheapest," if number else "no replica at all"
    said = f"--max-cost-per-hour {most:g} pays for {paid} where --min-replicas is"
    return [f"{said} {parsed.min_replicas}: what must not be spent is not spent"]


def _remark_on_fixed(parsed: argparse.Namespace, types: Sequence[EngineType]) -> list[str]:
    """Where `--fixed` is of no use, or asks for more than there are nodes."""
    if not parsed.fixed:
        return []
    if "fixed" not in parsed.scaler:
        return ["--fixed is of no use without --scaler fixed"]
    return [
        f"--fixed asks for {parsed.fixed[one.name]:g} {one.name}, and --gpu has nodes for"
        f" {one.num_nodes}: the others never start"
        for one in types
        if parsed.fixed.get(one.name, 0) > one.num_nodes
    ]


def _remark_on_events(parsed: argparse.Namespace, workload: Workload) -> list[str]:
    """Events that come when nobody asks any more."""
    end = workload.trace[-1].arrival_seconds
    return [
        f"the event {one.kind} of {one.engine_type} at second {one.at:g} comes after the last"
        f" request, which is at second {end:.0f}"
        for one in parsed.event
        if one.at > end
    ]
