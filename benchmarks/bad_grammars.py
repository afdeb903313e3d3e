"""What bad grammars do to others: 16 streams alone, and with clients that ask for the worst forms.

    gap_ms          between two events of a stream; a step is 20 ms and brings one event
    first_byte_ms   from sending a request to its first event
    answers         statuses of those who asked for bad forms

`python -m benchmarks.bad_grammars [--json FILE]` serves a simulated model with steps of 20 ms. The
bad forms, each time another text so that no refusal is remembered: a schema that refers to itself
without end, one of 20,000 parts, an expression whose automaton is huge, and a grammar that is slow
to follow. Wall time: the machine's other work is in it, so both phases run alternately.
"""

import argparse
import asyncio
import json
import os
import statistics
import time
from collections import Counter
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import httpx

from benchmarks.http import run_server

NUM_STREAMS, NUM_TOKENS, NUM_ROUNDS, NUM_BAD_CLIENTS = 16, 150, 3, 4
STEP_SECONDS = 0.02
_unlike = count()


def bad_forms() -> list[dict[str, Any]]:
    """Forms that cost a compiler much, unlike all before."""
    name = f"n{next(_unlike)}"
    many = {f"{name}_{number}": {"type": "string"} for number in range(19_000)}
    loop = {"allOf": [{"$ref": "#"}, {"title": name, "minLength": 1}]}
    rules = f'root ::= a a a a a "{name}"\na ::= b*\nb ::= c*\nc ::= "x"*'
    return [
        {"json": {"$defs": {name: loop}, **loop}},
        {"json": {"type": "object", "properties": many}},
        {"regex": f"({name}|(a|b|ab)*c){{1000}}(.{{1,1000}}x){{1,1000}}"},
        {"grammar": rules},
    ]


async def stream(http: httpx.AsyncClient, body: dict[str, Any]) -> tuple[float, list[float]]:
    """Read one answer; seconds to its first event, and between all others."""
    moments = [time.perf_counter()]
    async with http.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        moments += [time.perf_counter() async for _ in response.aiter_bytes()]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    return gaps[0], gaps[1:]


async def disturb(http: httpx.AsyncClient, model: str, number: int, seen: Counter[int]) -> None:
    """Ask for bad forms, one after the other, until cancelled."""
    while True:
        form = bad_forms()[number % 4]
        body = {"model": model, "prompt": "x", "max_tokens": 8, "structured_outputs": form}
        answer = await http.post("/v1/completions", json=body)
        seen[answer.status_code] += 1


async def run_round(url: str, model: str, seen: Counter[int] | None) -> dict[str, list[float]]:
    """All streams once; with bad clients beside them if their answers are to be counted."""
    body = {"model": model, "prompt": "x", "max_tokens": NUM_TOKENS, "stream": True}
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        bad = [
            asyncio.create_task(disturb(http, model, number, seen))
            for number in range(NUM_BAD_CLIENTS)
            if seen is not None
        ]
        read = [stream(http, body | {"ignore_eos": True}) for _ in range(NUM_STREAMS)]
        answers = await asyncio.gather(*read)
        for task in bad:
            task.cancel()
        await asyncio.gather(*bad, return_exceptions=True)
    return {
        "first_byte_ms": [1000 * first for first, _ in answers],
        "gap_ms": [1000 * gap for _, gaps in answers for gap in gaps],
    }


def describe(rounds: list[dict[str, list[float]]]) -> dict[str, float]:
    """Median and 99th percentile of each figure over all rounds."""
    described = {}
    for name in rounds[0]:
        values = [value for one in rounds for value in one[name]]
        described[f"{name}_p50"] = round(statistics.median(values), 2)
        described[f"{name}_p99"] = round(statistics.quantiles(values, n=100)[98], 2)
    return described


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    alone, beside, seen = [], [], Counter[int]()
    with run_server(STEP_SECONDS, api_workers=1) as server:
        url, model = server.url, server.model
        asyncio.run(run_round(url, model, None))  # to be warm
        for _ in range(NUM_ROUNDS):
            alone.append(asyncio.run(run_round(url, model, None)))
            beside.append(asyncio.run(run_round(url, model, seen)))
    results = {
        "load_average": round(os.getloadavg()[0], 1),
        "streams": NUM_STREAMS,
        "alone": describe(alone),
        "beside_bad_grammars": describe(beside),
        "answers": {str(status): number for status, number in sorted(seen.items())},
    }
    print(json.dumps(results, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
