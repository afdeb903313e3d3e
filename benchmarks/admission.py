"""How much good work admission lets through, and what it costs.

`python -m benchmarks.admission [--json FILE] [--full] [--calibration] [--speed]` replays traffic at
multiples of one engine's capacity under quire's admission and its rivals, in virtual time. The
chat trace is the one that QUIRE_TRACE names, or else a generated one; see the docstrings of
`admission_cases`, `admission_runs` and `admission_policies` for what is run and counted.

    goodput_vs_waiting_at_2x         quire / admit while the prompt fits and wait for ever
    goodput_vs_best_threshold_min    quire / the best fixed threshold in hindsight, by their means
                                     over all traces of a case
    goodput_vs_best_threshold_min_error    standard error of that ratio, from trace to trace
    goodput_share_of_throughput_min  quire's good tokens / all of its tokens
    preempted_share_max              quire's preemptions / requests
    preempted_share_max_of_a_trace   the same, in the worst of all traces
    recomputed_share_max             quire's tokens computed twice / tokens

each the worst over all cases and loads, of means over their traces. --full runs all loads and
policies. --keep puts the runs into benchmarks/results/admission.{json,md,svg}, in place of those of
the same cases, policies and loads there.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from benchmarks.admission_cases import CASES, Case, name_of_trace
from benchmarks.admission_coverage import measure_coverage
from benchmarks.admission_policies import POLICIES
from benchmarks.admission_report import TARGETS, summarize, to_markdown, to_svg
from benchmarks.admission_retry import measure_retry
from benchmarks.admission_runs import Run, measure, measure_capacity
from benchmarks.admission_speed import measure_speed

_RESULTS = Path(__file__).parent / "results"
_LOADS = (0.5, 1.0, 1.5, 2.0, 4.0)
_QUICK_LOADS = (1.0, 2.0)
"""Waiting for ever is slow to replay, and only compared from 1.5 times the capacity on."""
_QUICK_POLICIES = ("quire", "unbounded", "held_0.9", "held_0.95")


def measure_case(case: Case, *, is_full: bool) -> list[Run]:
    """Find the case's capacity, then replay it at multiples of that."""
    seconds = case.span_seconds
    capacity = measure_capacity(case, seconds)
    runs = []
    for policy in POLICIES if is_full else _QUICK_POLICIES:
        for load in _LOADS if is_full else _QUICK_LOADS[policy == "unbounded" :]:
            for seed in range(_num_seeds(case, policy)):
                run = measure(
                    case,
                    policy,
                    load=load,
                    requests_per_second=load * capacity,
                    seconds=seconds,
                    seed=seed,
                )
                print(_describe(run), flush=True)
                runs.append(run)
    return runs


def _num_seeds(case: Case, policy: str) -> int:
    """Return how many traces to replay: ratios of 10 and more need no second one."""
    is_close = policy == "quire" or policy.startswith("held_0")
    return case.num_seeds if is_close else 1


def _measure_quick(case: Case) -> list[Run]:
    return measure_case(case, is_full=False)


def _measure_full(case: Case) -> list[Run]:
    return measure_case(case, is_full=True)


def measure_cases(cases: list[Case], *, is_full: bool, num_processes: int) -> list[Run]:
    """Measure each case, several at a time if wished; in the order of the cases."""
    work = _measure_full if is_full else _measure_quick
    if num_processes == 1:
        return [run for case in cases for run in work(case)]
    with Pool(num_processes) as pool:
        return [run for runs in pool.map(work, cases, chunksize=1) for run in runs]


def _describe(run: Run) -> str:
    return (
        f"{run.case:14s} {run.load:3g}x {run.policy:10s} {run.seed} goodput {run.goodput:8.1f}"
        f" tokens/s, {run.goodput_share:.2%} of throughput; began {run.started_share:.1%},"
        f" {run.late_first_tokens} late, {run.slow_answers} slow; preempted"
        f" {run.preempted_share:.2%}, recomputed {run.recomputed_share:.2%};"
        f" {run.cpu_seconds:.1f} s of processor"
    )


def main() -> None:
    arguments = _parse_arguments()
    figures: dict[str, Any] = {"chat_trace": name_of_trace()}
    if arguments.speed:
        figures |= measure_speed()
    if arguments.calibration:
        figures |= measure_coverage() | measure_retry()
    if not (arguments.speed or arguments.calibration):
        cases = [case for case in CASES if case.name in arguments.cases]
        runs = measure_cases(cases, is_full=arguments.full, num_processes=arguments.processes)
        figures |= summarize(runs) | {"targets": TARGETS, "runs": [asdict(run) for run in runs]}
        if arguments.keep:
            _keep(runs)
    print(*_lines(figures), sep="\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def _keep(runs: list[Run]) -> None:
    """Exchange the kept runs of these cases, policies and loads, and draw everything anew."""
    path = _RESULTS / "admission.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() else []
    measured = {(run.case, run.policy, run.load) for run in runs}
    others = (Run(**run) for run in kept)
    runs = [*runs, *(r for r in others if (r.case, r.policy, r.load) not in measured)]
    cases, policies = [case.name for case in CASES], list(POLICIES)
    runs.sort(key=lambda r: (cases.index(r.case), policies.index(r.policy), r.load, r.seed))
    figures = {"chat_trace": name_of_trace()} | summarize(runs) | {"targets": TARGETS}
    _RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures | {"runs": [asdict(run) for run in runs]}, indent=2) + "\n")
    (_RESULTS / "admission.md").write_text(to_markdown(runs))
    (_RESULTS / "admission.svg").write_text(to_svg(runs))


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    for name, value in figures.items():
        if isinstance(value, float):
            yield f"{name} {value:.4g}"


def _parse_arguments() -> argparse.Namespace:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--full", action="store_true", help="all loads and policies")
    parser.add_argument("--keep", action="store_true", help="put the runs into the results")
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--processes", type=int, default=1, help="cases measured at a time")
    parser.add_argument(
        "--calibration", action="store_true", help="hold predictions against what came instead"
    )
    parser.add_argument("--speed", action="store_true", help="time admission itself instead")
    return parser.parse_args()


if __name__ == "__main__":
    main()
