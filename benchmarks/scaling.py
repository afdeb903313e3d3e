"""The operator's scaling beside its rivals: cost, promises kept and changes, in virtual time.

`python -m benchmarks.scaling [--json FILE] [--markdown FILE] [--processes N]` runs the chat trace
that QUIRE_TRACE names, or else a generated one of the same rate, at several times its rate; an 8B
model in bfloat16 and int4; 2 s to the first token and 60 or 120 ms a token for 95 % of requests.
All see the same requests, GPUs, gateway and engines, and begin with what the first five minutes
need. `--traffic diurnal shifting bursty` runs generated kinds in the trace's place.

    cost_vs_oracle  dollars / those of the mix that knows each 5 minutes beforehand, there at once
    cost_vs_single  dollars / those of the best single type, scaled by the same code; it may leave a
                    hundredth of the requests unserved, whose prompts are too long for it
    single-all      the best single type that serves every prompt, where that is another one
    attainment      requests answered whole with both promises met / all
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path

import msgspec

from benchmarks.scaling_report import write_markdown
from benchmarks.scaling_runs import ScalingRun
from quire_engine.profiles.shapes import Quantization
from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel, make_engine_type
from quire_local.simulate.observing import Scaler
from quire_local.simulate.scalers.choosing import Makers
from quire_local.simulate.simulation import Scenario, simulate
from quire_local.simulate.sizing import choose_single
from quire_local.simulate.workload import Workload, generate_workload, prepare, read_workload

GPUS = ("t4", "l4", "a10g", "a100-80", "h100", "h200")
SHAPE = "llama3.1-8b"
_MAX_MODEL_LEN = 16_384
_CHAT_RATE = 5.5
_SECONDS = 3600.0
SCALERS = ("oracle", "quire", "single", "single-all", "keda", "hpa", "greedy", "melange")
_LONGEST = {4.0: 1800.0, 16.0: 600.0}
"""At so many times the rate, only the first seconds: a run is to take minutes."""


@dataclass(frozen=True, kw_only=True)
class ScalingCase:
    """One traffic, model and promise."""

    traffic: str
    times: float
    quantization: Quantization
    per_token_seconds: float
    seed: int = 0

    @property
    def name(self) -> str:
        """For people."""
        milliseconds = round(self.per_token_seconds * 1e3)
        weights = "bf16" if self.quantization == "none" else self.quantization
        return f"{self.traffic} x{self.times:g}, {weights}, {milliseconds} ms"

    def scenario(self) -> Scenario:
        """Make it."""
        slo = ServiceLevel(first_token_seconds=2.0, per_token_seconds=self.per_token_seconds)
        made = (
            make_engine_type(
                gpu,
                SHAPE,
                quantization=self.quantization,
                max_model_len=_MAX_MODEL_LEN,
                slo=slo,
                # of the six types one was measured, in one of the two kinds of weights: it is not
                # to win or lose against the others by where its figures are from
                by_data_sheets=True,
            )
            for gpu in GPUS
        )
        workload = prepare(
            _traffic(self.traffic),
            times=self.times,
            seconds=_LONGEST.get(self.times),
            max_model_len=_MAX_MODEL_LEN,
            seed=self.seed,
        )
        return Scenario(
            trace=workload.trace,
            types=[one for one in made if isinstance(one, EngineType)],
            max_model_len=_MAX_MODEL_LEN,
            slo=slo,
            limits=Limits(),
            seed=self.seed,
        )


@cache
def _traffic(kind: str) -> Workload:
    path = os.environ.get("QUIRE_TRACE")
    if kind == "chat" and path:
        return read_workload(Path(path), skips_bad_rows=False)
    known = "poisson" if kind == "chat" else kind
    return generate_workload(
        known,  # type: ignore[arg-type]  # argparse looked
        requests_per_second=_CHAT_RATE,
        seconds=_SECONDS,
        seed=0,
    )


def measure(case: ScalingCase, scaler: str) -> ScalingRun | None:
    """Run one scaler; None: it would be that of another name again."""
    began = time.thread_time()
    scenario = case.scenario()
    makers = Makers(scenario=scenario)
    if scaler == "single-all":
        kind = choose_single(
            scenario.trace, scenario.types, scenario.slo, limits=scenario.limits, accepted=0.0
        )
        if kind == makers.single_type:
            return None
        made: Scaler = makers.quire(kind)
    else:
        made = makers.make(scaler)
    result = simulate(scenario, made)
    return ScalingRun(
        case=case.name,
        scaler=scaler,
        label=result.scaler,
        num_requests=result.num_requests,
        seconds=result.seconds,
        dollars=result.dollars,
        lower_bound_dollars=sum(one.dollars for one in makers.windows),
        attainment=result.attainment,
        first_token_seconds=result.first_token_seconds,
        per_token_seconds=result.per_token_seconds,
        num_refused=result.num_refused,
        num_lost=result.num_lost,
        num_lost_to_drain=result.num_lost_to_drain,
        num_preemptions=result.num_preemptions,
        changes_per_hour=result.changes_per_hour,
        replica_hours={name: hours for name, hours in result.replica_hours.items() if hours},
        cpu_seconds=time.thread_time() - began,
    )


def _measure(work: tuple[ScalingCase, str]) -> ScalingRun | None:
    run = measure(*work)
    if run is None:
        return None
    print(
        f"{run.case:28s} {run.label:18s} ${run.dollars:8.2f} kept {run.attainment:7.2%}"
        f" refused {run.num_refused:5d} changes/h {run.changes_per_hour:5.1f}"
        f" cpu {run.cpu_seconds:.0f} s",
        flush=True,
    )
    return run


def _keep(path: Path, runs: Sequence[ScalingRun]) -> list[ScalingRun]:
    """Put the runs into a file, in place of those of the same case and scaler there."""
    kept = msgspec.json.decode(path.read_bytes(), type=list[ScalingRun]) if path.exists() else []
    measured = {(run.case, run.scaler) for run in runs}
    together = [one for one in kept if (one.case, one.scaler) not in measured] + list(runs)
    together.sort(key=lambda one: (one.case, SCALERS.index(one.scaler)))
    encoded = msgspec.json.encode([asdict(one) for one in together])
    path.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")
    return together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--traffic", nargs="+", default=["chat"], choices=["chat", "diurnal", "shifting", "bursty"]
    )
    parser.add_argument("--times", nargs="+", type=float, default=[0.2, 1.0])
    parser.add_argument("--quantization", nargs="+", default=["none", "int4"])
    parser.add_argument("--milliseconds", nargs="+", type=float, default=[60, 120])
    parser.add_argument("--scalers", nargs="+", default=list(SCALERS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    work = [
        (
            ScalingCase(
                traffic=traffic,
                times=times,
                quantization=quantization,
                per_token_seconds=milliseconds / 1e3,
            ),
            scaler,
        )
        for traffic in options.traffic
        for times in options.times
        for quantization in options.quantization
        for milliseconds in options.milliseconds
        for scaler in options.scalers
    ]
    runs: list[ScalingRun] = []
    with Pool(options.processes) as pool:
        for run in filter(None, pool.imap_unordered(_measure, work, chunksize=1)):
            runs.append(run)
            together = _keep(options.json, [run]) if options.json else runs
            if options.markdown:
                options.markdown.write_text(write_markdown(together), encoding="utf-8")


if __name__ == "__main__":
    main()
