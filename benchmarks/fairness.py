"""What a flood of background work costs interactive requests.

`python -m benchmarks.fairness [--json FILE]` sends the same interactive requests, at the same
times, first alone and then during a flood of background ones that never lets the queue run empty,
and compares the times to the first token. The target: the p99 within 1.5 times, while the
background work goes on.

In virtual time the engine is driven directly: what is seen is the scheduler's doing alone, and
always the same. Most cases have steps of equal length; the others have those of an A100, under
objectives that bound them, and refuse no interactive request. Over HTTP (left out with
`--virtual-only`) client and server share the machine's cores, and the flood's own HTTP costs are a
part of what is measured.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from benchmarks.http import Server
from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.protocol.messages import AddRequest, Priority
from quire_engine.protocol.sampling import SamplingParams

TARGET_RATIO = 1.5
STEP_SECONDS = 0.02
NUM_SEATS = 32
NUM_PROMPT_TOKENS = 220
HTTP_BLOCKS = 2048


@dataclass(frozen=True)
class Case:
    """How much of what is sent, to an engine of which size."""

    name: str
    num_blocks: int
    interactive_per_second: float
    num_tokens: int
    """Of each answer."""
    num_background: int = 64
    """Background requests in the engine, running or waiting, at every moment."""
    num_interactive: int = 400
    num_prompt_tokens: int = NUM_PROMPT_TOKENS
    has_real_steps: bool = False
    """Steps take as long as an A100's, within objectives of 2 s and 60 ms a token."""


CASES = (
    Case("seats", HTTP_BLOCKS, 20, 16),
    Case("seats, long answers", HTTP_BLOCKS, 10, 64),
    Case("blocks", 512, 20, 16),
    Case("blocks, long answers", 512, 10, 64),
    Case("blocks, backlog longer than ageing", 512, 10, 64, num_background=400),
    Case("real steps", 20_000, 8, 256, 600, num_prompt_tokens=500, has_real_steps=True),
    Case("real steps, long prompts", 20_000, 3, 256, 600, 400, 2000, has_real_steps=True),
)
"""Named after what the flood uses up."""


# -- virtual time ---------------------------------------------------------------------------


def make_core(case: Case, clock: VirtualClock) -> EngineCore:
    """An engine for a case; without real steps, every one takes the same time."""
    objectives = AdmissionConfig(slo_time_to_first_token=2.0, slo_time_per_output_token=0.06)
    config = EngineConfig(
        model=ModelConfig(max_model_len=4096),
        cache=CacheConfig(max_num_blocks=case.num_blocks),
        scheduler=SchedulerConfig(max_num_seqs=256 if case.has_real_steps else NUM_SEATS),
        admission=objectives if case.has_real_steps else AdmissionConfig(),
        executor=ExecutorConfig(
            simulate="a100-80",
            model_shape="llama3.1-8b",
            simulated_step_seconds=None if case.has_real_steps else STEP_SECONDS,
        ),
    )
    executor = SimulatedExecutor(config, clock=clock)
    return EngineCore(config, executor, executor.allocate_cache(), random_source=random.Random(1))


class VirtualRun:
    """One engine, its interactive requests, and a flood that is fed as it drains."""

    def __init__(self, case: Case, *, with_flood: bool) -> None:
        self.case = case
        self.clock = VirtualClock()
        self.core = make_core(case, self.clock)
        self.first_token_seconds: list[float] = []
        self._arrived: dict[str, float] = {}
        self._chance = random.Random(3)
        self._coming: list[tuple[float, int, int]] = []
        """(when, class, number)."""
        self._num_background = 0
        for number, moment in enumerate(interactive_moments(case)):
            heappush(self._coming, (1.0 + moment, int(Priority.INTERACTIVE), number))
        for _ in range(case.num_background * with_flood):
            self._add_background(0.0)

    def run(self) -> dict[str, float]:
        """Until every interactive request has ended."""
        left, background = self.case.num_interactive, 0
        while left:
            if not self.core.has_work():
                self.clock.sleep_until(self._coming[0][0])
            while self._coming and self._coming[0][0] <= self.clock.now():
                self._send(*heappop(self._coming))
            for kind, has_ended in self._step():
                left -= has_ended and kind is Priority.INTERACTIVE
                background += has_ended and kind is Priority.BACKGROUND
        return summarize_times(self.first_token_seconds, background / self.clock.now())

    def _step(self) -> Iterator[tuple[Priority, bool]]:
        deltas = self.core.step(self.clock.now())
        now = self.clock.now()
        for _, delta in deltas:
            kind = Priority(int(delta.request_id.split("-")[0]))
            if delta.queue_seconds is not None and kind is Priority.INTERACTIVE:
                self.first_token_seconds.append(now - self._arrived[delta.request_id])
            if delta.finish_reason is not None and kind is Priority.BACKGROUND:
                self._add_background(now)
            yield kind, delta.finish_reason is not None

    def _add_background(self, now: float) -> None:
        heappush(self._coming, (now, int(Priority.BACKGROUND), self._num_background))
        self._num_background += 1

    def _send(self, moment: float, kind: int, number: int) -> None:
        request_id = f"{kind}-{number}"
        self._arrived[request_id] = moment
        prompt = [kind, *self._chance.choices(range(256), k=self.case.num_prompt_tokens - 1)]
        request = AddRequest(
            client_id="benchmark",
            request_id=request_id,
            prompt_token_ids=prompt,
            sampling=SamplingParams(max_tokens=self.case.num_tokens),
            priority=Priority(kind),
        )
        if self.core.add(request, self.clock.now()) is not None:
            raise SystemExit(f"{request_id} was refused")


# -- over HTTP ------------------------------------------------------------------------------

_SERVE = (
    *("-m", "quire_engine", "--simulate", "h100", "--model-shape", "llama3-8b", "--port", "0"),
    *("--max-num-seqs", str(NUM_SEATS), "--max-model-len", "2048"),
    *("--max-num-blocks", str(HTTP_BLOCKS), "--simulated-step-seconds", str(STEP_SECONDS)),
)


async def ask(server: Server, priority: str, num_tokens: int) -> float:
    """Stream one completion over a connection of its own; returns seconds to the first token."""
    address = urlsplit(server.url)
    prompt = f"{random.random():.18f}".ljust(NUM_PROMPT_TOKENS, "x")
    fields = {"model": server.model, "prompt": prompt, "max_tokens": num_tokens, "stream": True}
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {address.netloc}\r\nconnection: close\r\n"
        f"x-quire-priority: {priority}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        sent_at = time.perf_counter()
        writer.write(head.encode() + body)
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit(f"a request was refused: {status.decode().strip()}")
        first_token_seconds = time.perf_counter() - sent_at  # the head comes with the first token
        await reader.read()
    finally:
        writer.close()
    return first_token_seconds


class HttpRun:
    """The same over HTTP, in real time."""

    def __init__(self, server: Server, case: Case, *, with_flood: bool) -> None:
        self._server = server
        self._case = case
        self._num_background = case.num_background * with_flood
        self._num_ended = 0
        self._has_begun = asyncio.Event()

    async def run(self) -> dict[str, float]:
        """Send the interactive requests; returns the figures."""
        tasks = [asyncio.create_task(self._flood()) for _ in range(self._num_background)]
        if tasks:
            await self._has_begun.wait()
        started_at, ended_before = time.perf_counter(), self._num_ended
        seconds = await self._send_interactive()
        passed = time.perf_counter() - started_at
        rate = (self._num_ended - ended_before) / passed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return summarize_times(seconds, rate)

    async def _flood(self) -> None:
        while True:
            await ask(self._server, "background", self._case.num_tokens)
            self._num_ended += 1
            self._has_begun.set()

    async def _send_interactive(self) -> list[float]:
        started_at = time.perf_counter()
        tasks = []
        for moment in interactive_moments(self._case):
            await asyncio.sleep(max(0.0, started_at + moment - time.perf_counter()))
            tasks.append(
                asyncio.create_task(ask(self._server, "interactive", self._case.num_tokens))
            )
        return list(await asyncio.gather(*tasks))


# -- figures --------------------------------------------------------------------------------


def interactive_moments(case: Case) -> Iterator[float]:
    """When the interactive requests come, in seconds: always the same."""
    chance, moment = random.Random(7), 0.0
    for _ in range(case.num_interactive):
        moment += chance.expovariate(case.interactive_per_second)
        yield moment


def summarize_times(first_token_seconds: list[float], background_rate: float) -> dict[str, float]:
    """Quantiles of the interactive requests, and what the flood got done."""
    ordered = sorted(first_token_seconds)
    return {
        "first_token_seconds_p50": ordered[len(ordered) // 2],
        "first_token_seconds_p99": ordered[len(ordered) * 99 // 100],
        "background_requests_per_second": background_rate,
    }


def compare(name: str, alone: dict[str, float], flooded: dict[str, float]) -> dict[str, Any]:
    """Both runs and their ratio; also printed."""
    ratio = flooded["first_token_seconds_p99"] / alone["first_token_seconds_p99"]
    quantiles = [
        f"{quantile} {1e3 * alone[key]:.0f} and {1e3 * flooded[key]:.0f} ms"
        for quantile in ("p50", "p99")
        for key in (f"first_token_seconds_{quantile}",)
    ]
    print(
        f"{name}: alone and flooded {', '.join(quantiles)} ({ratio:.2f} times);"
        f" background {flooded['background_requests_per_second']:.1f} requests/s",
        flush=True,
    )
    return {"name": name, "first_token_p99_ratio": ratio, "alone": alone, "flooded": flooded}


def run_virtual() -> list[dict[str, Any]]:
    """All cases in virtual time."""
    return [
        compare(
            f"virtual, {case.name}",
            VirtualRun(case, with_flood=False).run(),
            VirtualRun(case, with_flood=True).run(),
        )
        for case in CASES
    ]


def run_http(num_repeats: int) -> list[dict[str, Any]]:
    """The first case over HTTP, several times."""
    case = Case("seats", HTTP_BLOCKS, 20, 16, num_interactive=200)
    pairs = []
    with subprocess.Popen([sys.executable, *_SERVE], stdout=subprocess.PIPE, text=True) as process:
        server = Server(process)
        for _ in range(num_repeats):
            alone = uvloop.run(_run_http_once(server, case, with_flood=False))
            flooded = uvloop.run(_run_http_once(server, case, with_flood=True))
            pairs.append(compare("HTTP, seats", alone, flooded))
        process.terminate()
    return pairs


async def _run_http_once(server: Server, case: Case, *, with_flood: bool) -> dict[str, float]:
    return await HttpRun(server, case, with_flood=with_flood).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--repeats", type=int, default=3, help="pairs over HTTP")
    parser.add_argument("--virtual-only", action="store_true", help="leave HTTP out")
    arguments = parser.parse_args()
    virtual = run_virtual()
    http = [] if arguments.virtual_only else run_http(arguments.repeats)
    figures = {
        "target_ratio": TARGET_RATIO,
        "interactive_p99_ratio": max(case["first_token_p99_ratio"] for case in virtual),
        "http_interactive_p99_ratio_median": statistics.median(
            pair["first_token_p99_ratio"] for pair in http
        )
        if http
        else None,
        "virtual": virtual,
        "http": http,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
