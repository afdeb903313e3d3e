"""Scaling when things break: `python -m benchmarks.scaling_faults [--json FILE] [--markdown FILE]`.

Half an hour of the chat trace that QUIRE_TRACE names, or else of a generated one, with an 8B model
in int4 and 2 s and 120 ms for 95 % of requests; from second 600 on something is wrong. Beside
quire's scaling a KEDA rule with the same faults, and quire without any.
"""

import argparse
import json
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path

from benchmarks.scaling import ScalingCase
from quire_local.simulate.faults import parse_event
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.scalers.choosing import Makers
from quire_local.simulate.simulation import Scenario, simulate

_SECONDS = 1800.0
_TYPES = ("t4", "l4", "a10g", "a100-80", "h100", "h200")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong."""

    name: str
    events: tuple[str, ...] = ()
    start_seconds: float | None = None
    spot_hours: float | None = None
    forgets_after: float | None = None


FAULTS = (
    Fault(name="none"),
    Fault(name="no node of the type in use", events=("600:vanish:t4", "600:vanish:a100-80")),
    Fault(name="half the engines not heard", events=tuple(f"600:silence:{t}:0.5" for t in _TYPES)),
    Fault(name="gateways not heard", events=("600:silence:gateways",)),
    Fault(
        name="spot storm",
        events=tuple(f"{at}:reclaim:{t}:0.5" for at in (600, 900) for t in _TYPES),
        spot_hours=2.0,
    ),
    Fault(name="operator begins anew each minute", forgets_after=60.0),
    Fault(name="nodes take 3 minutes", start_seconds=180.0),
)


def make_scenario(fault: Fault) -> Scenario:
    """The traffic and the types, with what is wrong."""
    case = ScalingCase(traffic="chat", times=1.0, quantization="int4", per_token_seconds=0.12)
    scenario = case.scenario()
    types = [
        replace(
            one,
            start_seconds=fault.start_seconds or one.start_seconds,
            spot_hours=fault.spot_hours,
        )
        for one in scenario.types
    ]
    trace = [one for one in scenario.trace if one.arrival_seconds < _SECONDS]
    events = tuple(map(parse_event, fault.events))
    return replace(scenario, types=types, trace=trace, events=events)


def _measure(work: tuple[Fault, str]) -> dict[str, object]:
    fault, name = work
    scenario = make_scenario(fault)
    makers = Makers(scenario=scenario, forgets_after=fault.forgets_after)
    result = simulate(scenario, makers.make(name))
    reasons = _reasons(result)
    print(
        f"{fault.name:34s} {name:6s} ${result.dollars:6.2f} kept {result.attainment:7.2%}"
        f" refused {result.num_refused:5d} lost {result.num_lost:3d} died {result.num_deaths:3d}"
        f" changes {result.num_changes:3d}",
        *(f"\n    {reason}" for reason in reasons[:4]),
        flush=True,
    )
    return {
        "fault": fault.name,
        "scaler": name,
        "dollars": result.dollars,
        "attainment": result.attainment,
        "num_refused": result.num_refused,
        "num_lost": result.num_lost,
        "num_lost_to_drain": result.num_lost_to_drain,
        "num_changes": result.num_changes,
        "reasons": reasons,
    }


def _reasons(result: SimulationResult) -> list[str]:
    """What was said from the fault on."""
    return [f"{one.at:.0f} s: {one.reason}" for one in result.decisions if one.at >= 600]


def write_markdown(figures: list[dict[str, object]]) -> str:
    """One table."""
    lines = [
        "# Scaling when things break, simulated\n",
        "Made by `python -m benchmarks.scaling_faults`.\n",
        "| from second 600 | scaler | SLO kept | cost $ | refused | lost | changes | first said |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in figures:
        reasons = one["reasons"]
        first = reasons[0] if isinstance(reasons, list) and reasons else "-"
        lines.append(
            f"| {one['fault']} | {one['scaler']} | {one['attainment']:.2%} | {one['dollars']:.2f}"
            f" | {one['num_refused']} | {one['num_lost']} | {one['num_changes']} | {first} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scalers", nargs="+", default=["quire", "keda"])
    parser.add_argument("--faults", nargs="+", default=[one.name for one in FAULTS])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    work = [
        (fault, name)
        for fault in FAULTS
        if fault.name in options.faults
        for name in options.scalers
    ]
    with Pool(options.processes) as pool:
        figures = pool.map(_measure, work, chunksize=1)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(write_markdown(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
