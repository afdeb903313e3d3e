"""Shared prefixes in virtual time: `python -m benchmarks.fleet_prefixes [--json FILE]`.

Four H100 with an 8B model; 32 system prompts of 2,048 tokens, the popular ones more often, each
with a question of its own. One after the other: a cold start, the same warm, an engine restarted, a
gateway restarted, and caches that hold
three quarters of the prompts, at most.

    hit_share     prompt tokens that were found in caches / all
    max_vs_mean   requests of the engine that got most / their mean
"""

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path

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
_FEW_BLOCKS = 3000
"""Of which 32 prompts take 4,096."""
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


async def _run(name: str, num_blocks: int | None, results: list[PhaseFigures]) -> None:
    loop = asyncio.get_running_loop()
    lengths: dict[int, int] = {}
    config = _config(num_blocks)
    engines = [VirtualEngine(f"h100-{n}", config, lengths, n) for n in range(_NUM_ENGINES)]
    async with asyncio.TaskGroup() as group:
        router: Router = ROUTERS[name](engines, 1)
        always = [task for engine in engines for task in engine.start(group)]
        always.append(group.create_task(router.work()))
        for phase in PHASES if num_blocks is None else ("small caches",):
            await asyncio.sleep(20.0)  # a new engine gets its share slowly
            if phase == "engine restarted":
                engines[0].restart()
            if phase == "gateway restarted" and isinstance(router, Quire):
                router.restart()
            jobs = make_jobs(len(lengths), loop.time(), len(lengths))
            lengths |= {job.number: job.num_output_tokens for job in jobs}
            running = []
            for job in jobs:
                await asyncio.sleep(job.arrival - loop.time())
                running.append(group.create_task(router.run(job)))
            await asyncio.gather(*running)
            caches = "all prompts" if num_blocks is None else "three quarters"
            results.append(_figures(name, caches, phase, jobs, engines))
        for task in always:
            task.cancel()


def _figures(
    router: str, caches: str, phase: str, jobs: Sequence[Job], engines: Sequence[VirtualEngine]
) -> PhaseFigures:
    firsts = sorted(
        inf if job.first_token_at is None else job.first_token_at - job.arrival for job in jobs
    )
    counts = [sum(1 for job in jobs if job.engine == engine.name) for engine in engines]
    num_tokens = sum(len(job.prompt) for job in jobs if job.engine)
    return PhaseFigures(
        router=router,
        caches=caches,
        phase=phase,
        num_requests=len(jobs),
        answered_share=sum(counts) / len(jobs),
        hit_share=sum(job.num_cached_tokens for job in jobs) / max(num_tokens, 1),
        p50_first_token_seconds=firsts[len(firsts) // 2],
        p99_first_token_seconds=firsts[int(0.99 * len(firsts))],
        max_vs_mean=max(counts) * len(counts) / max(sum(counts), 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--routers", nargs="+", default=["quire", "cache_aware", "scores"])
    options = parser.parse_args()
    results: list[PhaseFigures] = []
    for router in options.routers:
        for num_blocks in (None, _FEW_BLOCKS):
            run_virtually(_run(router, num_blocks, results))
    for one in results:
        print(
            f"{one.router:12s} {one.phase:18s} answered {one.answered_share:.1%} hits"
            f" {one.hit_share:.1%} first token p50 {one.p50_first_token_seconds:.3f} p99"
            f" {one.p99_first_token_seconds:.3f} max/mean {one.max_vs_mean:.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
