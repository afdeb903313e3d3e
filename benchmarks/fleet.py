"""How well a fleet of unlike engines is used: quire's gateway and its rivals.

`python -m benchmarks.fleet [--json FILE] [--processes N]` replays the chat trace that QUIRE_TRACE
names, or else a generated one, in virtual time: real engine cores with the step times of each GPU,
the gateway's own service, and the rules of `fleet_routers`, all with the same engines and arrivals.
Load is a share of what the engines answer well, each alone (`fleet_cases`). Counted are requests
that arrive after the warm-up; one that is refused has an infinite time to its first token.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from multiprocessing import Pool
from pathlib import Path

from benchmarks.fleet_cases import CASES, FleetCase
from benchmarks.fleet_engines import VirtualEngine
from benchmarks.fleet_routers import ROUTERS, Job, Router
from benchmarks.fleet_time import run_virtually


@dataclass(frozen=True, kw_only=True)
class FleetRun:
    """Figures of one run; seconds are virtual."""

    case: str
    router: str
    seed: int
    requests_per_second: float
    num_requests: int
    goodput: float
    """Tokens per second of requests that were answered whole and within both objectives."""
    good_share: float
    """Of the requests."""
    refused_share: float
    late_share: float
    slow_share: float
    p50_first_token_seconds: float
    p99_first_token_seconds: float
    """Of all requests; those that were refused have an infinite one."""
    p99_answered_seconds: float
    """Of those that were answered."""
    mean_seconds: float
    """Of those that were answered, from arrival to end."""
    refusals_per_request: float
    preempted_share: float
    answered_by: dict[str, int]
    cpu_seconds: float


def measure(case: FleetCase, router: str, *, requests_per_second: float, seed: int) -> FleetRun:
    """Run one router with one trace."""
    began = time.thread_time()
    jobs = case.jobs(requests_per_second, seed)
    engines: list[VirtualEngine] = []
    run_virtually(_run(case, router, jobs, engines, seed))
    window = [job for job in jobs if job.arrival >= case.warm_up_seconds]
    firsts = sorted(_first_seconds(job) for job in window)
    answered = [seconds for seconds in firsts if seconds < inf]
    good = [job for job in window if is_good(job, case)]
    late = sum(1 for seconds in answered if seconds > case.first_token_seconds)
    count = len(window)
    by_engine = {e.name: sum(1 for job in window if job.engine == e.name) for e in engines}
    return FleetRun(
        case=case.name,
        router=router,
        seed=seed,
        requests_per_second=requests_per_second,
        num_requests=count,
        goodput=sum(job.num_received for job in good) / case.span_seconds,
        good_share=len(good) / count,
        refused_share=(count - len(answered)) / count,
        late_share=late / count,
        slow_share=(len(answered) - late - len(good)) / count,
        p50_first_token_seconds=_quantile(firsts, 0.5),
        p99_first_token_seconds=_quantile(firsts, 0.99),
        p99_answered_seconds=_quantile(answered, 0.99),
        mean_seconds=_mean([(j.ended_at or inf) - j.arrival for j in window if j.ended_at]),
        refusals_per_request=sum(job.num_refusals + job.num_races for job in window) / count,
        preempted_share=sum(e.stats.num_preemptions for e in engines) / len(jobs),
        answered_by=by_engine,
        cpu_seconds=time.thread_time() - began,
    )


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)] if values else inf


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else inf


def _first_seconds(job: Job) -> float:
    return inf if job.first_token_at is None else job.first_token_at - job.arrival


def is_good(job: Job, case: FleetCase) -> bool:
    """Whether it was answered within both objectives."""
    if job.first_token_at is None or job.ended_at is None:
        return False
    pauses = max(job.num_received - 1, 1)
    in_time = job.first_token_at - job.arrival <= case.first_token_seconds
    return in_time and job.ended_at - job.first_token_at <= case.per_token_seconds * pauses


async def _run(
    case: FleetCase, name: str, jobs: Sequence[Job], engines: list[VirtualEngine], seed: int
) -> None:
    lengths = {job.number: job.num_output_tokens for job in jobs}
    for gpu, count in case.engines.items():
        config = case.engine_case(gpu).config()
        engines += [VirtualEngine(f"{gpu}-{n}", config, lengths, seed) for n in range(count)]
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        router: Router = ROUTERS[name](engines, seed)
        always = [task for engine in engines for task in engine.start(group)]
        always.append(group.create_task(router.work()))
        running = []
        for job in jobs:
            await asyncio.sleep(job.arrival - loop.time())
            running.append(group.create_task(router.run(job)))
        await asyncio.gather(*running)
        for task in always:
            task.cancel()


def _measure(work: tuple[str, str, float, int]) -> FleetRun:
    name, router, rate, seed = work
    case = next(one for one in CASES if one.name == name)
    run = measure(case, router, requests_per_second=rate, seed=seed)
    print(describe(run), flush=True)
    return run


def describe(run: FleetRun) -> str:
    return (
        f"{run.case:8s} {run.router:13s} {run.seed} goodput {run.goodput:7.0f} good"
        f" {run.good_share:.2%} refused {run.refused_share:.2%} late {run.late_share:.2%} slow"
        f" {run.slow_share:.2%} first token p50 {run.p50_first_token_seconds:.2f} p99"
        f" {run.p99_first_token_seconds:.2f} ({run.p99_answered_seconds:.2f}) all"
        f" {run.mean_seconds:.2f} refusals"
        f" {run.refusals_per_request:.3f} preempted {run.preempted_share:.2%}"
        f" {list(run.answered_by.values())} cpu {run.cpu_seconds:.0f}"
    )


def _keep(path: Path, runs: Sequence[FleetRun]) -> None:
    """Put the runs into a file, in place of those of the same cases there; infinity is null."""
    kept = json.loads(path.read_text()) if path.exists() else []
    measured = {run.case for run in runs}
    kept = [one for one in kept if one["case"] not in measured]
    kept += [{k: v if v != inf else None for k, v in asdict(run).items()} for run in runs]
    path.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    parser.add_argument("--routers", nargs="+", default=list(ROUTERS))
    parser.add_argument("--loads", nargs="+", type=float, default=[0.9])
    parser.add_argument("--capacity", type=float, help="requests per second, if known")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    capacities = {
        case.name: options.capacity or case.capacity()
        for case in CASES
        if case.name in options.cases
    }
    work = [
        (case.name, router, load * capacities[case.name], seed)
        for case in CASES
        if case.name in options.cases
        for load in options.loads
        for seed in range(options.seeds or case.num_seeds)
        for router in options.routers
    ]
    with Pool(options.processes) as pool:
        runs = pool.map(_measure, work, chunksize=1)
    if options.json:
        _keep(options.json, runs)


if __name__ == "__main__":
    main()
