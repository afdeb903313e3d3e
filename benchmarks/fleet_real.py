"""A small mixed fleet as real processes: `python -m benchmarks.fleet_real --router PROGRAM`.

An L4, an A100-80 and an H100 with an 8B model, simulated, with step times as many times as long as
`--slow` says, and behind them in turn the gateway and `vllm-router` as its package installs it
(`uv tool install vllm-router==0.1.17`) with its policies. The chat trace that QUIRE_TRACE names, or
a generated one, comes at 90 % of what the engines answer well, each alone; objectives are as many
times as long, too. Clients stream over one connection each. Only quire's gateway knows what a
client was promised; the engines know it with all routers. What is refused is not sent again.

A check in real time of what `benchmarks.fleet` measures in virtual time: on a busy machine every
figure has some of that in it.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path

import msgspec
import uvloop

from benchmarks.fleet_cases import CASES, FleetCase, traffic
from benchmarks.gateway_routers import document, free_port, program
from quire_engine.execution.simulation_target import SimulationTarget, find_target
from quire_engine.profiles.engine_profile import EngineProfile
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.profiles.traces import TraceRequest
from quire_engine.server.listener import raise_open_files

_CASE: FleetCase = CASES[0]
_GPUS = ("l4", "a100-80", "h100")
_POLICIES = ("cache_aware", "round_robin", "power_of_two")
_LOAD = 0.9
_START_SECONDS = 120.0
_SETTLE_SECONDS = 12.0
"""A new engine gets its share slowly."""
_RESULT = Path(__file__).parent / "results" / "fleet_real.json"
_MARK = b'"text"'
"""Once in each event with a token."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz      "


@dataclass(slots=True)
class Asked:
    """One request, and what came of it; seconds since it was sent."""

    num_tokens: int
    counts: bool
    """Whether it came after the warm-up."""
    status: int = 0
    first_token_seconds: float = inf
    seconds: float = inf
    num_received: int = 0

    def is_good(self, slow: float) -> bool:
        """Whether it was answered whole, and within both objectives."""
        pauses = max(self.num_tokens - 1, 1)
        pace = (self.seconds - self.first_token_seconds) / pauses
        return (
            self.num_received == self.num_tokens
            and self.first_token_seconds <= slow * _CASE.first_token_seconds
            and pace <= slow * _CASE.per_token_seconds
        )


@dataclass(frozen=True, kw_only=True)
class RealFigures:
    """One router; seconds are those of the engines' clock, real / slow."""

    router: str
    slow: float
    requests_per_second: float
    num_requests: int
    goodput: float
    good_share: float
    refused_share: float
    broken: int
    p50_first_token_seconds: float | None
    p99_first_token_seconds: float | None
    """Of all; null where more than one in a hundred was not answered."""
    p99_answered_seconds: float
    answered_by: dict[str, int]
    preemptions: int


def slowed(model: StepTimeModel, times: float) -> StepTimeModel:
    """The same engine, as many times as slow."""
    named = ("seconds_per_sequence", "seconds_per_context_token", "seconds_per_pair")
    floors = ("floor_seconds", "prompt_seconds", "prompt_floor_seconds", "mixed_floor_seconds")
    return msgspec.structs.replace(
        model,
        compute_seconds=tuple(times * one for one in model.compute_seconds),
        context_seconds=tuple(times * one for one in model.context_seconds),
        **{name: times * getattr(model, name) for name in (*named, *floors)},
    )


def profile_of(gpu: str, slow: float) -> EngineProfile:
    """What `quire profile` would have measured of such an engine."""
    config = _CASE.engine_case(gpu).config()
    target: SimulationTarget = find_target(config)
    return EngineProfile(
        device=gpu,
        model=target.model,
        max_model_len=target.max_model_len,
        vocab_size=target.vocab_size,
        num_blocks=target.count_blocks(),
        block_size=config.cache.block_size,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        step_time=slowed(target.step_time, slow),
    )


def engine_command(gpu: str, port: int, folder: Path, slow: float) -> tuple[str, ...]:
    path = folder / f"{gpu}.json"
    path.write_bytes(msgspec.json.encode(profile_of(gpu, slow)))
    return (
        *(sys.executable, "-m", "quire_engine", "--simulate", str(path), "--port", str(port)),
        *("--served-model-name", "m", "--max-model-len", "8192", "--no-enable-prefix-caching"),
        *("--max-num-seqs", "256", "--max-num-batched-tokens", "8192"),
        *("--slo-time-to-first-token", str(slow * _CASE.first_token_seconds)),
        *("--slo-time-per-output-token", str(slow * _CASE.per_token_seconds)),
    )


def gateway_command(engines: Sequence[int], port: int, folder: Path, slow: float) -> list[str]:
    promised = {
        "slo_time_to_first_token_seconds": slow * _CASE.first_token_seconds,
        "slo_time_per_output_token_seconds": slow * _CASE.per_token_seconds,
    }
    made = document(*engines)
    made["thresholds"] |= promised
    path = folder / "routing.json"
    path.write_text(json.dumps(made))
    flags = ["--routing", str(path), "--port", str(port), "--management-port", str(port + 1)]
    return [sys.executable, "-m", "quire_gateway", *flags]


def router_command(vllm: str, policy: str, engines: Sequence[int], port: int) -> list[str]:
    return [
        *(vllm, "--host", "127.0.0.1", "--port", str(port), "--policy", policy),
        *("--worker-urls", *(f"http://127.0.0.1:{one}" for one in engines)),
        *("--prometheus-port", str(port + 1), "--log-level", "error"),
    ]


async def ask(port: int, one: Asked, prompt: str) -> None:
    """Stream one answer."""
    body = json.dumps(
        {"model": "m", "prompt": prompt, "max_tokens": one.num_tokens, "stream": True}
    )
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{head}content-type: application/json\r\n\r\n{body}".encode())
        one.status = int((await reader.readuntil(b"\r\n\r\n")).split(None, 2)[1])
        end = b""
        while one.status == 200 and b"data: [DONE]" not in end:
            data = await reader.read(1 << 16)
            if not data:
                return
            # a piece may end in mid-word
            count = (end[1 - len(_MARK) :] + data).count(_MARK)
            if count and not one.num_received:
                one.first_token_seconds = time.perf_counter() - began
            one.num_received += count
            end = (end + data)[-64:]
        one.seconds = time.perf_counter() - began
    except (ConnectionError, asyncio.IncompleteReadError):
        one.num_received = 0
    finally:
        writer.close()


async def load(port: int, trace: Sequence[TraceRequest], warm_up: float) -> list[Asked]:
    """Send the trace at its times."""
    loop, chance = asyncio.get_running_loop(), random.Random(0)
    began, asked = loop.time(), []
    async with asyncio.TaskGroup() as group:
        for one in trace:
            prompt = "".join(chance.choices(_LETTERS, k=min(one.num_prompt_tokens, 4096)))
            await asyncio.sleep(began + one.arrival_seconds - loop.time())
            asked.append(Asked(one.num_output_tokens, one.arrival_seconds >= warm_up))
            group.create_task(ask(port, asked[-1], prompt))
    return asked


async def until_answering(port: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        one = Asked(1, counts=False)
        with suppress(OSError):
            await ask(port, one, "x")
        if one.status == 200:
            return
        await asyncio.sleep(0.3)
    raise SystemExit(f"nothing answers on port {port}")


async def num_counted(port: int, name: str) -> int:
    """A counter of an engine's metrics page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    text = (await reader.read(-1)).decode()
    writer.close()
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(name))
    return sum(int(float(value)) for _, _, value in lines)


async def measure(name: str, rate: float, options: argparse.Namespace) -> RealFigures:
    """Run one router with engines of its own."""
    slow, warm_up = options.slow, options.warm_up
    trace = traffic(rate, warm_up + options.seconds, options.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = []
        for gpu in _GPUS:
            ports.append(free_port())
            stack.enter_context(program(*engine_command(gpu, ports[-1], folder, slow)))
            await until_answering(ports[-1])
        port = free_port()
        if name == "quire":
            command = gateway_command(ports, port, folder, slow)
        else:
            command = router_command(options.router, name, ports, port)
        stack.enter_context(program(*command))
        await until_answering(port)
        await asyncio.sleep(_SETTLE_SECONDS)
        count = partial(num_counted, name="vllm:request_success_total")
        before = [await count(one) for one in ports]
        asked = await load(port, trace, warm_up)
        answered = [await count(one) - was for one, was in zip(ports, before, strict=True)]
        preempted = [await num_counted(one, "vllm:num_preemptions_total") for one in ports]
    window = [one for one in asked if one.counts]
    firsts = sorted(one.first_token_seconds / slow for one in window)
    known = [one for one in firsts if one < inf]
    good = [one for one in window if one.is_good(slow)]
    p50, p99 = firsts[len(firsts) // 2], firsts[int(0.99 * len(firsts))]
    return RealFigures(
        router=name,
        slow=slow,
        requests_per_second=rate * slow,
        num_requests=len(window),
        goodput=round(sum(one.num_tokens for one in good) / options.seconds * slow, 1),
        good_share=round(len(good) / len(window), 4),
        refused_share=round(sum(one.status != 200 for one in window) / len(window), 4),
        broken=sum(one.status == 200 and one.num_received != one.num_tokens for one in window),
        p50_first_token_seconds=round(p50, 3) if p50 < inf else None,
        p99_first_token_seconds=round(p99, 3) if p99 < inf else None,
        p99_answered_seconds=round(known[int(0.99 * len(known))], 3),
        answered_by=dict(zip(_GPUS, answered, strict=True)),
        preemptions=sum(preempted),
    )


def keep(path: Path, one: RealFigures) -> None:
    """Put it into a file, in place of the same router's there."""
    kept = json.loads(path.read_text()) if path.exists() else []
    kept = [other for other in kept if other["router"] != one.router]
    path.write_text(json.dumps([*kept, asdict(one)], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", help="vllm-router, as a program")
    parser.add_argument("--routers", nargs="+", default=["quire", *_POLICIES])
    parser.add_argument("--slow", type=float, default=2.0)
    parser.add_argument("--warm-up", type=float, default=25.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rate", type=float, help="of requests at full speed, if known")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    raise_open_files(4096)
    rate = options.rate or _LOAD * sum(_CASE.capacity_of(gpu) for gpu in _GPUS)
    print(f"{rate:.2f} requests/s at full speed", flush=True)
    for name in options.routers:
        one = uvloop.run(measure(name, rate / options.slow, options))
        print(one, flush=True)
        if options.json:
            keep(options.json, one)


if __name__ == "__main__":
    main()
