"""How fast the simulator is: `python -m benchmarks.simulate_speed [--json FILE]`.

The chat trace that QUIRE_TRACE names, or else a generated hour of the same rate, on 20 L4 engines
with an 8B model in bfloat16; and its first 5 minutes again in single steps, which is what leaps of
decode steps save.

    virtual_vs_processor     seconds of the trace / seconds of processor time
    leaps_vs_single_steps    processor time of the first 5 minutes, single steps / leaps
"""

import argparse
import json
import os
import time
from pathlib import Path

from quire_engine.profiles.traces import TraceRequest, read_trace
from quire_local.simulate.hardware import EngineType, ServiceLevel, make_engine_type
from quire_local.simulate.scalers.fixed import FixedScaler
from quire_local.simulate.simulation import Scenario, Simulation
from quire_local.simulate.workload import generate_workload

_MAX_MODEL_LEN = 16_384
_NUM_ENGINES = 20
_PART_SECONDS = 300.0
_GOAL_SECONDS = 60.0


def _trace() -> list[TraceRequest]:
    path = os.environ.get("QUIRE_TRACE")
    if path:
        trace = read_trace(path)
    else:
        made = generate_workload("poisson", requests_per_second=5.5, seconds=3600.0, seed=0)
        trace = list(made.trace)
    return [r for r in trace if r.num_prompt_tokens + r.num_output_tokens < _MAX_MODEL_LEN]


def _run(trace: list[TraceRequest], *, leaps: bool) -> tuple[float, Simulation]:
    """Processor time of a run."""
    slo = ServiceLevel(per_token_seconds=0.12)
    kind = make_engine_type(
        "l4", "llama3.1-8b", quantization="none", max_model_len=_MAX_MODEL_LEN, slo=slo
    )
    if not isinstance(kind, EngineType):
        raise SystemExit(kind.reason)
    scenario = Scenario(trace=trace, types=[kind], max_model_len=_MAX_MODEL_LEN, slo=slo)
    simulation = Simulation(scenario, FixedScaler({"l4": _NUM_ENGINES}), lambda _: None)
    simulation.takes_leaps = leaps
    began = time.process_time()
    simulation.run()
    return time.process_time() - began, simulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trace = _trace()
    began = time.perf_counter()
    seconds, simulation = _run(trace, leaps=True)
    wall = time.perf_counter() - began
    part = [one for one in trace if one.arrival_seconds < _PART_SECONDS]
    together, _ = _run(part, leaps=True)
    singly, _ = _run(part, leaps=False)
    figures = {
        "num_requests": len(trace),
        "num_engines": _NUM_ENGINES,
        "processor_seconds": seconds,
        "wall_seconds": wall,
        "goal_seconds": _GOAL_SECONDS,
        "virtual_vs_processor": simulation.agenda.now / seconds,
        "leaps_vs_single_steps": singly / together,
        "milliseconds_per_request": 1e3 * seconds / len(trace),
    }
    for name, value in figures.items():
        print(f"{name:24s} {value:10.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
