"""500 requests in 100 ms on four engines: `python -m benchmarks.fleet_burst [--json FILE]`.

In virtual time, with 1, 2 and 4 gateways that know nothing of each other.

    races_vs_accepted  requests that an engine refused as they came / accepted
    good_share         requests with both objectives met / all
"""

import argparse
import asyncio
import json
import random
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from benchmarks.fleet import is_good
from benchmarks.fleet_cases import CASES
from benchmarks.fleet_engines import VirtualEngine
from benchmarks.fleet_routers import Quire
from benchmarks.fleet_time import run_virtually

_NUM_REQUESTS = 500
_SECONDS = 0.1
_NUM_GATEWAYS = (1, 2, 4)
_CASE = CASES[1]


@dataclass(frozen=True, kw_only=True)
class BurstFigures:
    """One burst."""

    num_gateways: int
    seed: int
    num_accepted: int
    races_vs_accepted: float
    good_share: float
    accepted_by: dict[str, int]


async def _run(num_gateways: int, seed: int, results: list[BurstFigures]) -> None:
    loop = asyncio.get_running_loop()
    jobs = list(islice(_CASE.jobs(20.0, seed), _NUM_REQUESTS))
    chance = random.Random(seed)
    for job in jobs:
        job.arrival = 20.0 + _SECONDS * chance.random()
    lengths = {job.number: job.num_output_tokens for job in jobs}
    engines = [
        VirtualEngine(f"{gpu}-{n}", _CASE.engine_case(gpu).config(), lengths, n)
        for gpu, count in _CASE.engines.items()
        for n in range(count)
    ]
    async with asyncio.TaskGroup() as group:
        gateways = [Quire(engines, n, name=f"g{n}") for n in range(num_gateways)]
        always = [task for engine in engines for task in engine.start(group)]
        always += [group.create_task(one.work()) for one in gateways]
        running = []
        for number, job in enumerate(sorted(jobs, key=lambda one: one.arrival)):
            await asyncio.sleep(job.arrival - loop.time())
            running.append(group.create_task(gateways[number % num_gateways].run(job)))
        await asyncio.gather(*running)
        for task in always:
            task.cancel()
    num_accepted = sum(engine.num_accepted for engine in engines)
    results.append(
        BurstFigures(
            num_gateways=num_gateways,
            seed=seed,
            num_accepted=num_accepted,
            races_vs_accepted=sum(job.num_races for job in jobs) / num_accepted,
            good_share=sum(is_good(job, _CASE) for job in jobs) / len(jobs),
            accepted_by={engine.name: engine.num_accepted for engine in engines},
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    results: list[BurstFigures] = []
    for num_gateways in _NUM_GATEWAYS:
        for seed in range(options.seeds):
            run_virtually(_run(num_gateways, seed, results))
            one = results[-1]
            print(
                f"{one.num_gateways} gateways: accepted {one.num_accepted}, races"
                f" {one.races_vs_accepted:.2%}, good {one.good_share:.1%}, by engine"
                f" {one.accepted_by}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
