"""One number of `memoryPressure` moved: `python -m benchmarks.memory_pressure`.

`admission` goes from 95 to 60 while even traffic runs, in virtual time, through the real admission
of engines, choice of gateways and scaling; `target`, the part of it that is planned, stays at 60.
Requests need many blocks, and a burst in either half fills engines up to where they refuse.

    shed_point        the share of its blocks that the fullest engine has reserved while requests
                      are refused, the median
    routing_ceiling   the same as the gateway has it, with what it has sent since
    replicas          mean of those that are asked for, once the burst is forgotten

Written to benchmarks/results/memory_pressure.json, and drawn in docs/images/memory-pressure.svg, in
Chinese in memory-pressure.zh.svg.
"""

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from quire_engine.profiles.traces import TraceRequest
from quire_local.simulate.charts import HEIGHT, WIDTH, Series, line_chart
from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel, make_engine_type
from quire_local.simulate.scalers.quire import QuireScaler
from quire_local.simulate.simulation import Scenario, Simulation
from quire_local.simulate.sizing import size, split_by_length

BEFORE, AFTER = 0.95, 0.60
_LIMITS = Limits(target=0.60, background=0.60, admission=BEFORE)
_SLO = ServiceLevel(first_token_seconds=20.0, per_token_seconds=1.0)
_MAX_MODEL_LEN = 8192
_RATE, _BURST_RATE = 8.0, 60.0
_PROMPT, _OUTPUT = 600, 800
_SAMPLE_SECONDS = 1.0
_RESULTS = Path(__file__).resolve().parent / "results" / "memory_pressure.json"
_PICTURE = Path(__file__).resolve().parent.parent / "docs/images/memory-pressure"


class Times(NamedTuple):
    """When what happens in the time that one number is in force; seconds."""

    whole: float = 900.0
    burst: tuple[float, float] = (60.0, 70.0)
    steady: tuple[float, float] = (600.0, 900.0)
    """When replicas are counted."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One moment."""

    at: float
    admission: float
    reserved: float
    """Share of its blocks, of the engine that reserves most."""
    routed: float
    """Share of its blocks that a gateway takes to be taken, of the engine that it filled most."""
    replicas: int
    num_refused: int


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    times = Times()
    samples = run((BEFORE, AFTER), times)
    before, after = (summarise(samples, at * times.whole, times) for at in (0, 1))
    figures = {"before": before, "after": after, "ratio": compare(before, after)}
    print(json.dumps(figures, indent=1))
    _RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    for language, suffix in enumerate(("", ".zh")):
        _PICTURE.with_name(f"{_PICTURE.name}{suffix}.svg").write_text(draw(samples, language))


def run(numbers: Sequence[float], times: Times) -> list[Sample]:
    """Simulate with one number after the other as `admission`."""
    limits = replace(_LIMITS, admission=numbers[0])
    kind = make_engine_type(
        "l4", "llama3-8b", quantization="int4", max_model_len=_MAX_MODEL_LEN, slo=_SLO
    )
    if not isinstance(kind, EngineType):
        raise SystemExit(kind.reason)
    trace, even = _trace(len(numbers), times)
    first = size([kind], split_by_length(even, len(numbers) * times.whole), _SLO, limits=limits)
    scaler = QuireScaler([kind], first.replicas, slo=_SLO, limits=limits, max_replicas=100)
    scenario = Scenario(
        trace=trace, types=[kind], max_model_len=_MAX_MODEL_LEN, slo=_SLO, limits=limits
    )
    simulation = Simulation(scenario, scaler, lambda _: None)
    samples: list[Sample] = []

    def sample() -> None:
        samples.append(_look(simulation, scaler))
        simulation.agenda.after(_SAMPLE_SECONDS, sample)

    def move(number: float) -> None:
        scaler.limits = replace(scaler.limits, admission=number)
        simulation.change_limits(scaler.limits)

    simulation.agenda.at(0.0, sample)
    for at, number in enumerate(numbers[1:], 1):
        simulation.agenda.at(at * times.whole, partial(move, number))
    simulation.run()
    return [one for one in samples if one.at < len(numbers) * times.whole]


def _trace(num: int, times: Times) -> tuple[list[TraceRequest], list[TraceRequest]]:
    """Even traffic with a burst for each number, and the even part of it."""
    chance = random.Random(0)
    even = _requests(chance, _RATE, 0.0, num * times.whole)
    bursts = [
        request
        for at in range(num)
        for request in _requests(
            chance, _BURST_RATE, *(at * times.whole + one for one in times.burst)
        )
    ]
    return sorted((*even, *bursts), key=lambda one: one.arrival_seconds), even


def _requests(chance: random.Random, rate: float, start: float, end: float) -> list[TraceRequest]:
    return [
        TraceRequest(at, _about(chance, _PROMPT), _about(chance, _OUTPUT))
        for at in _arrive(chance, rate, start, end)
    ]


def _arrive(chance: random.Random, rate: float, start: float, end: float) -> list[float]:
    found, at = [], start + chance.expovariate(rate)
    while at < end:
        found.append(at)
        at += chance.expovariate(rate)
    return found


def _about(chance: random.Random, mean: int) -> int:
    return chance.randint(mean // 2, mean * 3 // 2)


def _look(simulation: Simulation, scaler: QuireScaler) -> Sample:
    engines = [one.engine for one in simulation.fleet.replicas if one.engine is not None]
    blocks = [one.core.stats().blocks for one in engines]
    admission = scaler.limits.admission
    figures = [
        one.figures
        for gateway in simulation.gateways
        for one in gateway.service.endpoints
        if one.figures is not None
    ]
    return Sample(
        at=simulation.agenda.now,
        admission=admission,
        reserved=max((one.reserved / one.total for one in blocks), default=0.0),
        routed=max((admission - one.free_blocks / one.num_blocks for one in figures), default=0.0),
        replicas=sum(simulation.fleet.wanted.values()),
        num_refused=sum(job.refusal != "" for job in simulation.jobs),
    )


def summarise(samples: Sequence[Sample], start: float, times: Times) -> dict[str, float]:
    """Figures of the time that one number was in force, from `start` on."""
    low, high = (start + one for one in times.steady)
    own = [one for one in samples if start <= one.at < start + times.whole]
    refusing = [after for before, after in pairwise(own) if after.num_refused > before.num_refused]
    return {
        "admission": own[-1].admission,
        "shed_point": round(median(one.reserved for one in refusing), 3),
        "routing_ceiling": round(median(one.routed for one in refusing), 3),
        "replicas": round(fmean(one.replicas for one in own if low <= one.at < high), 2),
        "refused": own[-1].num_refused - own[0].num_refused,
    }


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """How all moved. Emptier engines are faster, so replicas move less than what they may hold."""
    return {
        "admission": round(after["admission"] / before["admission"], 3),
        "shed_point": round(after["shed_point"] / before["shed_point"], 3),
        "routing_ceiling": round(after["routing_ceiling"] / before["routing_ceiling"], 3),
        "one_over_replicas": round(before["replicas"] / after["replicas"], 3),
    }


_TITLES = (
    (
        "Blocks of the fullest engine: reserved by it, and taken as the gateway knows",
        "最满的引擎的块：引擎预留的，以及网关所知已占用的",
    ),
    ("Replicas asked for", "要求的副本数"),
)
_NAMES = (("reserved", "预留"), ("gateway", "网关"), ("admission", "admission"))
_STYLE = """
text { font: 11px system-ui, sans-serif; fill: #5a5f68; } .title { font-size: 13px; fill: #1f2933; }
polyline { fill: none; stroke-width: 1.5; } .grid { stroke: #dcdcd6; }
.line-0 { stroke: #be3455; } .line-1 { stroke: #2563a8; } .line-2 { stroke: #0f9488; }
.fill-0 { fill: #be3455; } .fill-1 { fill: #2563a8; } .fill-2 { fill: #0f9488; }
"""


def draw(samples: Sequence[Sample], language: int) -> str:
    """Two charts over the same time; 0: in English, 1: in Chinese."""
    shares = [
        Series(name=_NAMES[at][language], points=points, hue=at)
        for at, points in enumerate(
            (
                [(one.at, 100 * one.reserved) for one in samples],
                [(one.at, 100 * one.routed) for one in samples],
                [(one.at, 100 * one.admission) for one in samples],
            )
        )
    ]
    replicas = [Series(name="", points=[(one.at, float(one.replicas)) for one in samples], hue=2)]
    charts = (
        line_chart(shares, label=_TITLES[0][language], unit="%", highest=100.0),
        line_chart(replicas, label=_TITLES[1][language], is_stacked=True, is_count=True),
    )
    room = HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * room}" role="img">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" rx="8" fill="#f8fafc"/>',
    ]
    for at, chart in enumerate(charts):
        top = at * room
        parts.append(f'<text class="title" x="12" y="{top + 20}">{_TITLES[at][language]}</text>')
        place = f'<svg x="0" y="{top + 40}" width="{WIDTH}" height="{HEIGHT}" '
        parts.append(chart.replace("<svg ", place, 1))
    for at, names in enumerate(_NAMES):
        x = 12 + 110 * at
        parts.append(f'<rect class="fill-{at}" x="{x}" y="27" width="10" height="10"/>')
        parts.append(f'<text x="{x + 15}" y="36">{names[language]}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
