"""Shared prefixes in virtual time: `python -m benchmarks.fleet_prefixes [--json FILE]`.

Four H100 with an 8B model; 32 system prompts of 2,048 tokens, the popular ones more often, each
with a question of its own. One after the other: a cold start, the same warm, an engine restarted, a
gateway restarted; and caches that hold three quarters of the prompts, or a third, at most.

    hit_share     prompt tokens that were found in caches / all
    max_vs_mean   requests of the engine that got most / their mean
"""

import argparse
import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean

from benchmarks.admission_cases import Case
from benchmarks.fleet_engines import VirtualEngine
from benchmarks.fleet_routers import ROUTERS, Job, Quire, Router
from benchmarks.fleet_time import run_virtually
from quire_engine.config import CacheConfig, EngineConfig

_NUM_ENGINES = 4
_NUM_PROMPTS = 32
_PROMPT_TOKENS = 2048
_CHUNK_TOKENS = 256
_MEAN_OUTPUT_TOKENS = 150
_SECONDS = 30.0
_REQUESTS_PER_SECOND = 60.0
_NUM_BLOCKS: Mapping[str, int | None] = {
    "all prompts": None,
    "three quarters": 3000,
    "a third": 1400,
}
"""Of each engine, by what of the 32 prompts, which take 4,096, its cache can hold."""
PHASES = ("cold", "warm", "engine restarted", "gateway restarted")
_CASE = Case(
    name="prefixes",
    binds="",
    gpu="h100",
    shape="llama3-8b",
    first_token_seconds=2.0,
    per_token_seconds=0.1,
    max_model_len=8192,
    overload_rate=0.0,
    warm_up_seconds=0.0,
    span_seconds=0.0,
)


@dataclass(frozen=True, kw_only=True)
class PhaseFigures:
    """One router in one phase."""

    router: str
    seed: int
    caches: str
    phase: str
    num_requests: int
    answered_share: float
    hit_share: float
    p50_first_token_seconds: float
    p99_first_token_seconds: float
    max_vs_mean: float


def make_jobs(first_number: int, begin: float, seed: int) -> list[Job]:
    """Return half a minute of requests."""
    chance = random.Random(seed)
    weights = [1 / (rank + 3) for rank in range(_NUM_PROMPTS)]
    jobs, at = [], begin
    for number in range(first_number, first_number + int(_SECONDS * _REQUESTS_PER_SECOND)):
        at += chance.expovariate(_REQUESTS_PER_SECOND)
        (which,) = chance.choices(range(_NUM_PROMPTS), weights)
        question = chance.randint(30, 400)
        num_tokens = _PROMPT_TOKENS + question
        num_shared = _PROMPT_TOKENS // _CHUNK_TOKENS
        names = [hash((which, index)) & (1 << 64) - 1 for index in range(num_shared)]
        names += [
            chance.getrandbits(64) for _ in range(-(-num_tokens // _CHUNK_TOKENS) - num_shared)
        ]
        jobs.append(
            Job(
                number=number,
                arrival=at,
                prompt=[which] * _PROMPT_TOKENS + [1000 + number] * question,
                num_output_tokens=1 + min(int(chance.expovariate(1 / _MEAN_OUTPUT_TOKENS)), 999),
                max_tokens=1000,
                guessed_prompt_tokens=num_tokens,
                chunks=tuple(names),
            )
        )
    return jobs


def _config(num_blocks: int | None) -> EngineConfig:
    config = _CASE.config()
    cache = CacheConfig(enable_prefix_caching=True, max_num_blocks=num_blocks)
    return replace(config, cache=cache)


def _measure(work: tuple[str, int, str]) -> list[PhaseFigures]:
    results: list[PhaseFigures] = []
    run_virtually(_run(*work, results))
    return results


async def _run(name: str, seed: int, caches: str, results: list[PhaseFigures]) -> None:
    loop, num_blocks = asyncio.get_running_loop(), _NUM_BLOCKS[caches]
    lengths: dict[int, int] = {}
    config = _config(num_blocks)
    engines = [VirtualEngine(f"h100-{n}", config, lengths, n) for n in range(_NUM_ENGINES)]
    async with asyncio.TaskGroup() as group:
        router: Router = ROUTERS[name](engines, 1 + seed)
        always = [task for engine in engines for task in engine.start(group)]
        always.append(group.create_task(router.work()))
        for phase in PHASES if num_blocks is None else ("small caches",):
            await asyncio.sleep(20.0)  # a new engine gets its share slowly
            if phase == "engine restarted":
                engines[0].restart()
            if phase == "gateway restarted" and isinstance(router, Quire):
                router.restart()
            jobs = make_jobs(len(lengths), loop.time(), seed * 1_000_000 + len(lengths))
            lengths |= {job.number: job.num_output_tokens for job in jobs}
            running = []
            for job in jobs:
                await asyncio.sleep(job.arrival - loop.time())
                running.append(group.create_task(router.run(job)))
            await asyncio.gather(*running)
            results.append(_figures(name, seed, caches, phase, jobs, engines))
        for task in always:
            task.cancel()


def _figures(
    router: str,
    seed: int,
    caches: str,
    phase: str,
    jobs: Sequence[Job],
    engines: Sequence[VirtualEngine],
) -> PhaseFigures:
    firsts = sorted(
        inf if job.first_token_at is None else job.first_token_at - job.arrival for job in jobs
    )
    counts = [sum(1 for job in jobs if job.engine == engine.name) for engine in engines]
    num_tokens = sum(len(job.prompt) for job in jobs if job.engine)
    return PhaseFigures(
        router=router,
        seed=seed,
        caches=caches,
        phase=phase,
        num_requests=len(jobs),
        answered_share=sum(counts) / len(jobs),
        hit_share=sum(job.num_cached_tokens for job in jobs) / max(num_tokens, 1),
        p50_first_token_seconds=firsts[len(firsts) // 2],
        p99_first_token_seconds=firsts[int(0.99 * len(firsts))],
        max_vs_mean=max(counts) * len(counts) / max(sum(counts), 1),
    )


def _describe(several: Sequence[PhaseFigures]) -> str:
    """Means over the seeds."""

    def mean(name: str) -> float:
        return fmean(getattr(one, name) for one in several)

    return (
        f"answered {mean('answered_share'):.1%} hits {mean('hit_share'):.2%} first token p50"
        f" {mean('p50_first_token_seconds'):.3f} p99 {mean('p99_first_token_seconds'):.3f}"
        f" max/mean {mean('max_vs_mean'):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--routers", nargs="+", default=["quire", "cache_aware", "scores"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    work = product(options.routers, range(options.seeds), _NUM_BLOCKS)
    with Pool(options.processes) as pool:
        results = [one for several in pool.map(_measure, work, chunksize=1) for one in several]
    by_case: defaultdict[tuple[str, str, str], list[PhaseFigures]] = defaultdict(list)
    for one in results:
        by_case[one.caches, one.phase, one.router].append(one)
    for (caches, phase, router), several in sorted(by_case.items()):
        print(f"{caches:15s} {phase:18s} {router:12s} {_describe(several)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
