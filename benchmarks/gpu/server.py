"""The real server under many clients that come, read and leave, against the engine alone.

`python -m benchmarks.gpu.server MODEL --clients 300 --seconds 180 --json FILE`

Clients stream and wait, with prompts and outputs of 100 to 1024 tokens; some leave in the middle of
a stream. The same requests, leavers too, then go to an engine in this process, without HTTP.
Reported: tokens a second of both, memory at the beginning and the end, and what the
server still holds once everybody has gone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import re
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.gpu.harness import Results, measured_head
from quire_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.factory import create_executor
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams

NUM_SEQS, NUM_TOKENS, MAX_LEN = 256, 8192, 4096
NUM_LOADERS = 6
"""Processes that the clients share."""
LEAVING = 0.15
WARM_SECONDS, OFFLINE_WARM_SECONDS = 20.0, 12.0
MODEL_NAME = "served"
READY = re.compile(r"ready: (\S+) on (http://[^/\s]+)")


@dataclass(frozen=True)
class Work:
    """One request."""

    prompt: list[int]
    num_tokens: int
    leaves_after: int | None
    """Tokens after which its client leaves."""
    is_streamed: bool


def draw(rng: random.Random) -> Work:
    """Draw a request; those who leave are streamed to."""
    num_tokens = rng.randint(100, 1024)
    leaves = rng.randint(1, num_tokens // 2) if rng.random() < LEAVING else None
    prompt = [rng.randrange(100, 10000) for _ in range(rng.randint(100, 1024))]
    return Work(prompt, num_tokens, leaves, leaves is not None or rng.random() < 0.7)


async def client(
    session: aiohttp.ClientSession, url: str, model: str, seed: int, until: float
) -> list[str]:
    """Send one request after the other; returns what went wrong."""
    rng, failures = random.Random(seed), []
    while time.monotonic() < until:
        work = draw(rng)
        body = {
            "model": model,
            "prompt": work.prompt,
            "max_tokens": work.num_tokens,
            "temperature": 0.6,
            "ignore_eos": True,
            "stream": work.is_streamed,
        }
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            if answer.status != 200:
                failures.append(f"{answer.status}: {(await answer.text())[:200]}")
                await asyncio.sleep(0.5)
                continue
            if not work.is_streamed:
                usage = (await answer.json())["usage"]
                if usage["completion_tokens"] != work.num_tokens:
                    failures.append(f"usage {usage}, expected {work.num_tokens}")
                continue
            count, last = 0, b""
            async for line in answer.content:
                if line.startswith(b"data: "):
                    count, last = count + 1, line
                if count == work.leaves_after:
                    answer.close()
                    break
            else:
                if last.strip() != b"data: [DONE]":
                    failures.append(f"a stream ended with {last[:200]!r}")
    return failures


def load(arguments: tuple[str, str, int, int, float]) -> list[str]:
    """Run some clients in a process of their own."""
    url, model, first, count, seconds = arguments

    async def run() -> list[str]:
        until = time.monotonic() + seconds
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            parts = [client(session, url, model, first + i, until) for i in range(count)]
            return [failure for part in await asyncio.gather(*parts) for failure in part]

    return asyncio.run(run())


def get(url: str) -> str:
    """Fetch a page."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def generated(url: str) -> float:
    """Tokens that the server has generated."""
    lines = re.findall(r"^vllm:generation_tokens_total\S* (\S+)$", get(f"{url}/metrics"), re.M)
    return sum(map(float, lines))


def memory(pids: list[int]) -> dict[str, int]:
    """MiB that the processes have, and that the device has given."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    used = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    resident = sum(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) for text in texts)
    return {"host_mib": resident // 1024, "device_mib": int(used.split()[0])}


def family(pid: int) -> list[int]:
    """A process and all below it."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(child) for child in path.read_text().split()]
    return [pid, *(below for child in children for below in family(child))]


def serve(model: Path, clients: int, seconds: float, workers: int) -> dict[str, Any]:
    """Run the server under load; returns what was seen."""
    command = [
        *(sys.executable, "-m", "quire_engine", str(model), "--device", "cuda", "--port", "0"),
        *("--max-num-seqs", str(NUM_SEQS), "--max-num-batched-tokens", str(NUM_TOKENS)),
        *("--max-model-len", str(MAX_LEN), "--admission-ceiling", "1"),
        *("--api-workers", str(workers)),
    ]
    begin = time.monotonic()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    match = None
    while match is None:
        line = server.stdout.readline()
        if not line:
            raise SystemExit("the server did not start")
        match = READY.search(line)
    name, url = match.groups()
    result: dict[str, Any] = {"ready_s": time.monotonic() - begin}
    print(result, flush=True)
    pids = family(server.pid)
    share = -(-clients // NUM_LOADERS)
    jobs = [(url, name, share * i, share, seconds) for i in range(NUM_LOADERS)]
    with multiprocessing.get_context("spawn").Pool(NUM_LOADERS) as pool:
        pending = pool.map_async(load, jobs)
        time.sleep(WARM_SECONDS)
        before, at, first = memory(pids), time.monotonic(), generated(url)
        time.sleep(max(1.0, seconds - WARM_SECONDS - 5.0))
        rate = (generated(url) - first) / (time.monotonic() - at)
        after = memory(pids)
        failures = [failure for part in pending.get() for failure in part]
    result |= {"out_tokens_per_s": rate, "memory_at_20_s": before, "memory_at_the_end": after}
    result |= {"num_failures": len(failures), "failures": failures[:3]}
    time.sleep(3.0)
    state = json.loads(get(f"{url}/state"))
    result["state_after"] = {key: state[key] for key in ("is_ready", "blocks", "sequences")}
    audits = re.findall(r"^quire_\S*audit\S* \S+$", get(f"{url}/metrics"), re.M)
    result["audits"] = audits
    server.terminate()
    result["exit_status"] = server.wait(timeout=90)
    return result


def offline(model: Path, clients: int, seconds: float) -> float:
    """Tokens a second of the engine alone, so many requests always in it."""
    config = EngineConfig(
        model=ModelConfig(max_model_len=MAX_LEN),
        cache=CacheConfig(),
        scheduler=SchedulerConfig(max_num_seqs=NUM_SEQS, max_num_batched_tokens=NUM_TOKENS),
    )
    executor = create_executor(config, model)
    executor.load(lambda _stage, _done: None)
    core = EngineCore(config, executor, executor.allocate_cache())
    rng, number = random.Random(1), 0
    counts: dict[str, int] = {}
    leaving: dict[str, int] = {}
    begin, measured, num_tokens = time.monotonic(), 0.0, 0
    while (now := time.monotonic()) < begin + OFFLINE_WARM_SECONDS + seconds:
        while len(counts) < clients:
            work, number = draw(rng), number + 1
            sampling = SamplingParams(max_tokens=work.num_tokens, temperature=0.6)
            request = AddRequest(
                client_id="c",
                request_id=str(number),
                prompt_token_ids=work.prompt,
                sampling=sampling,
            )
            if core.add(request, now) is None:
                counts[str(number)] = 0
                if work.leaves_after is not None:
                    leaving[str(number)] = work.leaves_after
        gone = []
        for _, delta in core.step(now):
            name = delta.request_id
            if now >= begin + OFFLINE_WARM_SECONDS:
                measured = measured or now
                num_tokens += len(delta.token_ids)
            counts[name] = counts.get(name, 0) + len(delta.token_ids)
            if delta.finish_reason is not None:
                counts.pop(name)
            elif counts[name] >= leaving.get(name, MAX_LEN):
                gone.append(name)
        core.abort(gone)
        for name in gone:
            counts.pop(name)
    core.check_invariants()
    executor.close()
    return num_tokens / (time.monotonic() - measured)


def main() -> None:
    """Run both and write the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--offline-seconds", type=float, default=30.0)
    parser.add_argument("--api-workers", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = serve(arguments.model, arguments.clients, arguments.seconds, arguments.api_workers)
    print(json.dumps(result), flush=True)
    results = Results(arguments.json, measured_head())
    key = f"server/{arguments.model.name}"
    results.add(key, result)
    result["offline_tokens_per_s"] = offline(
        arguments.model, arguments.clients, arguments.offline_seconds
    )
    result["share_of_offline"] = result["out_tokens_per_s"] / result["offline_tokens_per_s"]
    results.add(key, result)


if __name__ == "__main__":
    main()
