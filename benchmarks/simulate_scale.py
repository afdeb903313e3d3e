"""Many services on many GPUs: `python -m benchmarks.simulate_scale [--seconds S] [--json FILE]`.

50 services with 20 gateways and 1,000 GPUs of 4 types together, a 3B model, 5,000 requests/s for 10
simulated minutes, whose rates go up and down at different times, all scaled by one decision every
5 s. `--seconds 60` takes the first minute, `--share 0.1` a tenth of services, gateways, GPUs and
requests, `--requests-per-second 500` a tenth of the requests alone. All of it takes an hour or two
of one core.

    decision_seconds   processor time of a decision for all services: median, highest; goal 1
    herd               of a service's ready engines of one type, three or more: the highest pressure
                       over the mean, at all decisions with a mean over 0.2; 1 is even
    cpu_per_request    processor time of the whole simulation
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from quire_engine.profiles.traces import TraceRequest
from quire_local.simulate.fleet import Status
from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel, make_engine_type
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.scalers.quire import QuireScaler
from quire_local.simulate.several import Several, SimulatedService
from quire_local.simulate.simulation import Scenario, Simulation
from quire_local.simulate.sizing import size, split_by_length
from quire_local.simulate.workload import generate_workload

_SLO = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.12)
_MAX_MODEL_LEN = 8192
_TYPES = ("t4", "l4", "a10g", "a100-80")
_DAY_SECONDS = 600.0
_TELL_SECONDS = 30.0
_NUM_SERVICES, _NUM_GATEWAYS, _NUM_ENGINES, _RATE = 50, 20, 1000, 5000.0
_LEAST_PRESSURE, _LEAST_ENGINES = 0.2, 3


@dataclass
class Herd:
    """How unevenly engines of one type are filled."""

    ratios: list[float] = field(default_factory=list)
    most_engines: int = 0

    def look(self, several: Several) -> None:
        """Take the pressures of now."""
        num_engines = 0
        for simulation in several.simulations.values():
            for name in simulation.fleet.types:
                pressures = _pressures(simulation, name)
                num_engines += len(pressures)
                mean = statistics.fmean(pressures) if pressures else 0.0
                if len(pressures) >= _LEAST_ENGINES and mean > _LEAST_PRESSURE:
                    self.ratios.append(max(pressures) / mean)
        self.most_engines = max(self.most_engines, num_engines)


def _pressures(simulation: Simulation, name: str) -> list[float]:
    states = [
        one.teller.state
        for one in simulation.fleet.of_type(name)
        if one.status is Status.READY and one.teller is not None
    ]
    return [one.pressure.value for one in states if one is not None and one.pressure is not None]


def make_services(
    share: float, seconds: float, requests_per_second: float = _RATE
) -> list[SimulatedService]:
    """All services; each begins with what its mean traffic needs."""
    num_services = max(round(_NUM_SERVICES * share), 2)
    num_nodes = max(round(_NUM_ENGINES * share) // len(_TYPES), num_services)
    types = [one for name in _TYPES if isinstance(one := _engine_type(name, num_nodes), EngineType)]
    free = dict.fromkeys((one.name for one in types), num_nodes)
    rate = requests_per_second * share / num_services
    return [
        _make_service(number, num_services, types, free, rate, seconds, share)
        for number in range(num_services)
    ]


def _engine_type(name: str, num_nodes: int) -> object:
    return make_engine_type(
        name,
        "llama3.2-3b",
        quantization="int4",
        max_model_len=_MAX_MODEL_LEN,
        slo=_SLO,
        num_nodes=num_nodes,
    )


def _make_service(
    number: int,
    num_services: int,
    types: list[EngineType],
    free: dict[str, int],
    rate: float,
    seconds: float,
    share: float,
) -> SimulatedService:
    trace = _trace(number, rate, seconds)
    first = _first(trace, types, free, num_services - number, seconds)
    for name, count in first.items():
        free[name] -= count
    limits = Limits()
    scenario = Scenario(
        trace=trace,
        types=types,
        max_model_len=_MAX_MODEL_LEN,
        slo=_SLO,
        limits=limits,
        num_gateways=max(round(_NUM_GATEWAYS * share), 1),
        seed=number,
    )
    scaler = QuireScaler(types, first, slo=_SLO, limits=limits, max_replicas=1000)
    return SimulatedService(
        name=f"service-{number}", scenario=scenario, scaler=scaler, priority=number % 3
    )


def _trace(number: int, rate: float, seconds: float) -> list[TraceRequest]:
    """The beginning of a day of ten minutes; for each service that is another hour of it."""
    made = generate_workload("diurnal", requests_per_second=rate, seconds=_DAY_SECONDS, seed=number)
    shift = _DAY_SECONDS * (number * 0.618 % 1.0)
    moved = [
        replace(one, arrival_seconds=(one.arrival_seconds + shift) % _DAY_SECONDS)
        for one in made.trace
        if one.num_prompt_tokens + one.num_output_tokens < _MAX_MODEL_LEN
    ]
    moved.sort(key=lambda one: one.arrival_seconds)
    return [one for one in moved if one.arrival_seconds < seconds]


def _first(
    trace: list[TraceRequest],
    types: list[EngineType],
    free: dict[str, int],
    num_left: int,
    seconds: float,
) -> dict[str, int]:
    """What the first minute needs, of this service's part of the nodes that are left."""
    part = [one for one in trace if one.arrival_seconds < min(60.0, seconds)]
    buckets = split_by_length(part or trace[:1], min(60.0, seconds))
    own = [replace(one, num_nodes=free[one.name] // num_left) for one in types]
    mix = size(own, buckets, _SLO, limits=Limits(), most_replicas=1000)
    return dict(mix.replicas)


def _figures(
    several: Several, results: dict[str, SimulationResult], herd: Herd, seconds: float
) -> dict[str, float]:
    num_requests = sum(one.num_requests for one in results.values())
    kept = sum(one.attainment * one.num_requests for one in results.values())
    rounds = [one.processor_seconds for one in several.rounds]
    ratios = sorted(herd.ratios) or [1.0]
    return {
        "num_services": len(results),
        "num_requests": num_requests,
        "most_ready_engines": herd.most_engines,
        "attainment": kept / num_requests,
        "num_lost": sum(one.num_lost for one in results.values()),
        "num_changes": sum(one.num_changes for one in results.values()),
        "decision_seconds_median": statistics.median(rounds),
        "decision_seconds_highest": max(rounds),
        "herd_median": statistics.median(ratios),
        "herd_p95": ratios[int(0.95 * (len(ratios) - 1))],
        "herd_highest": ratios[-1],
        "processor_seconds": seconds,
        "milliseconds_per_request": 1e3 * seconds / num_requests,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--requests-per-second", type=float, default=_RATE)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    herd = Herd()

    def look(several: Several) -> None:
        herd.look(several)
        if several.agenda.now % _TELL_SECONDS == 0.0:
            print(f"{several.agenda.now:.0f} s simulated", file=sys.stderr, flush=True)

    services = make_services(options.share, options.seconds, options.requests_per_second)
    several = Several(services, looked=look)
    began, wall = time.process_time(), time.perf_counter()
    results = several.run()
    figures = _figures(several, results, herd, time.process_time() - began)
    figures |= {
        "wall_seconds": time.perf_counter() - wall,
        "seconds": options.seconds,
        "share": options.share,
        "requests_per_second": options.requests_per_second,
        "share_of_the_rate": options.requests_per_second / _RATE,
    }
    for name, value in figures.items():
        print(f"{name:26s} {value:12.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
