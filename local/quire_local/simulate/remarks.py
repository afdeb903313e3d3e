"""What is to be said before a simulation: what was asked for and will not be."""

import argparse
from collections.abc import Sequence

from quire_local.simulate.hardware import EngineType
from quire_local.simulate.workload import Workload
from quire_local.words import counted, plain


def remark_on(
    parsed: argparse.Namespace, types: Sequence[EngineType], workload: Workload
) -> list[str]:
    """Bounds and faults that contradict each other, or of which nothing comes."""
    return [
        *_remark_on_cost(parsed, types),
        *_remark_on_fixed(parsed, types),
        *_remark_on_events(parsed, workload),
    ]


def _remark_on_cost(parsed: argparse.Namespace, types: Sequence[EngineType]) -> list[str]:
    """Where the money does not pay for the fewest replicas."""
    most = parsed.max_cost_per_hour
    cheapest = min(types, key=lambda one: one.dollars_per_hour)
    if most is None or most >= parsed.min_replicas * cheapest.dollars_per_hour:
        return []
    number = int(most / cheapest.dollars_per_hour) if cheapest.dollars_per_hour > 0 else 0
    paid = f"{number} on {cheapest.name}, the cheapest," if number else "no replica at all"
    said = f"--max-cost-per-hour {plain(most)} pays for {paid} where --min-replicas is"
    return [f"{said} {parsed.min_replicas}: what must not be spent is not spent"]


def _remark_on_fixed(parsed: argparse.Namespace, types: Sequence[EngineType]) -> list[str]:
    """Where `--fixed` asks for more than there are nodes."""
    return [
        f"--fixed asks for {parsed.fixed[one.name]} {one.name}, and --gpu has"
        f" {counted(one.num_nodes, 'node')}: what is beyond never starts"
        for one in types
        if parsed.fixed.get(one.name, 0) > one.num_nodes
    ]


def _remark_on_events(parsed: argparse.Namespace, workload: Workload) -> list[str]:
    """Events that come when nobody asks any more."""
    end = workload.trace[-1].arrival_seconds
    return [
        f"the event {one.kind} of {one.engine_type} at second {plain(one.at)} comes after the last"
        f" request, which is at second {end:.0f}"
        for one in parsed.event
        if one.at > end
    ]
