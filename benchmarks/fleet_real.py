"""A small mixed fleet as real processes: `python -m benchmarks.fleet_real --router PROGRAM`.

An L4, an A100-80 and an H100 with an 8B model, simulated, with step times as many times as long as
`--slow` says, and behind them in turn the gateway and `vllm-router` as its package installs it
(`uv tool install vllm-router==0.1.17`) with its policies. The chat trace that QUIRE_TRACE names, or
a generated one, comes at 90 % of what the engines answer well, each alone; objectives are as many
times as long, too. Clients stream over one connection each. Only quire's gateway knows what a
client was promised; the engines know it with all routers. What is refused is not sent again.

With `--prefixes` there are three H100 and 32 system prompts of 2,048 tokens, the popular ones more
often, each with a question of its own, as in `benchmarks.fleet_prefixes`; what counts then is the
share of prompt tokens that caches had, and how even the load is.

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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

import msgspec
import uvloop

from benchmarks.fleet_cases import CASES, FleetCase, traffic
from benchmarks.fleet_prefixes import make_jobs
from benchmarks.gateway_routers import document, free_port, program
from quire_engine.execution.simulation_target import SimulationTarget, find_target
from quire_engine.open_files import raise_open_files
from quire_engine.profiles.engine_profile import EngineProfile
from quire_engine.profiles.step_time import StepTimeModel

_CASE: FleetCase = CASES[0]
_MIXED, _EQUAL = ("l4", "a100-80", "h100"), ("h100",) * 3
_PREFIX_SHARE = 0.75
"""Of the arrivals that `benchmarks.fleet_prefixes` has for four engines."""
_POLICIES = ("cache_aware", "round_robin", "power_of_two")
_LOAD = 0.9
_START_SECONDS = 120.0
_SETTLE_SECONDS = 12.0
"""A new engine gets its share slowly."""
_RESULT = Path(__file__).parent / "results" / "fleet_real.json"
_LETTERS = "abcdefghijklmnopqrstuvwxyz      "


@dataclass(slots=True)
class Asked:
    """One request, and what came of it; seconds since it was sent."""

    num_tokens: int
    counts: bool
    """Whether it came after the warm-up."""
    arrival: float = 0.0
    prompt: str = "x"
    status: int = 0
    first_token_seconds: float = inf
    seconds: float = inf
    is_whole: bool = False

    def is_good(self, slow: float) -> bool:
        """Whether it was answered whole, and within both objectives."""
        pauses = max(self.num_tokens - 1, 1)
        pace = (self.seconds - self.first_token_seconds) / pauses
        return (
            self.is_whole
            and self.first_token_seconds <= slow * _CASE.first_token_seconds
            and pace <= slow * _CASE.per_token_seconds
        )


@dataclass(frozen=True, kw_only=True)
class RealFigures:
    """One router; seconds are those of the engines' clock, real / slow."""

    case: str
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
    answered_by: list[int]
    max_vs_mean: float
    hit_share: float
    """Of the prompt tokens, the warm-up's among them."""
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


def engine_command(gpu: str, port: int, folder: Path, options: argparse.Namespace) -> list[str]:
    slow, path = options.slow, folder / f"{gpu}.json"
    path.write_bytes(msgspec.json.encode(profile_of(gpu, slow)))
    caching = "--enable-prefix-caching" if options.prefixes else "--no-enable-prefix-caching"
    return [
        *(sys.executable, "-m", "quire_engine", "--simulate", str(path), "--port", str(port)),
        *("--served-model-name", "m", "--max-model-len", "8192", caching),
        *("--max-num-seqs", "256", "--max-num-batched-tokens", "8192"),
        *("--slo-time-to-first-token", str(slow * _CASE.first_token_seconds)),
        *("--slo-time-per-output-token", str(slow * _CASE.per_token_seconds)),
    ]


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


def mixed_lengths(rate: float, options: argparse.Namespace) -> list[Asked]:
    """The trace, each prompt another text; a byte is a token for a simulated engine."""
    chance = random.Random(0)
    return [
        Asked(
            one.num_output_tokens,
            counts=one.arrival_seconds >= options.warm_up,
            arrival=one.arrival_seconds,
            prompt=_text(chance, min(one.num_prompt_tokens, 4096)),
        )
        for one in traffic(rate, options.warm_up + options.seconds, options.seed)
    ]


def shared_prefixes(options: argparse.Namespace) -> list[Asked]:
    """Requests that begin with one of the system prompts."""
    chance = random.Random(0)
    systems: dict[int, str] = {}
    asked = []
    for job in make_jobs(0, 0.0, options.seed):
        num_own = sum(1 for token in job.prompt if token != job.prompt[0])
        system = systems.setdefault(job.prompt[0], _text(chance, len(job.prompt) - num_own))
        arrival = job.arrival / _PREFIX_SHARE * options.slow
        if arrival >= options.warm_up + options.seconds:
            break
        asked.append(
            Asked(
                job.num_output_tokens,
                counts=arrival >= options.warm_up,
                arrival=arrival,
                prompt=system + _text(chance, num_own),
            )
        )
    return asked


def _text(chance: random.Random, length: int) -> str:
    return "".join(chance.choices(_LETTERS, k=length))


async def ask(port: int, one: Asked) -> None:
    """Stream one answer."""
    body = json.dumps(
        {"model": "m", "prompt": one.prompt, "max_tokens": one.num_tokens, "stream": True}
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
            if one.first_token_seconds == inf and b'"text"' in data:
                one.first_token_seconds = time.perf_counter() - began
            end = (end + data)[-1024:]
        one.seconds = time.perf_counter() - began
        one.is_whole = b'"finish_reason":"length"' in end
    except (ConnectionError, asyncio.IncompleteReadError):
        one.first_token_seconds = inf
    finally:
        writer.close()


async def load(port: int, asked: Sequence[Asked]) -> None:
    """Send all at their times."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for one in asked:
            await asyncio.sleep(began + one.arrival - loop.time())
            group.create_task(ask(port, one))


async def until_answering(port: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        one = Asked(1, counts=False)
        with suppress(OSError):
            await ask(port, one)
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
    asked = shared_prefixes(options) if options.prefixes else mixed_lengths(rate, options)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = []
        for gpu in _EQUAL if options.prefixes else _MIXED:
            ports.append(free_port())
            stack.enter_context(program(*engine_command(gpu, ports[-1], folder, options)))
            await until_answering(ports[-1])
        port = free_port()
        if name == "quire":
            command = gateway_command(ports, port, folder, options.slow)
        else:
            command = router_command(options.router, name, ports, port)
        stack.enter_context(program(*command))
        await until_answering(port)
        await asyncio.sleep(_SETTLE_SECONDS)
        before = [await counted(one) for one in ports]
        await load(port, asked)
        after = [await counted(one) for one in ports]
    counts = [
        {key: now[key] - was[key] for key in was} for was, now in zip(before, after, strict=True)
    ]
    return figures_of(name, asked, counts, options)


_COUNTERS = {
    "answered": "vllm:request_success_total",
    "preempted": "vllm:num_preemptions_total",
    "hits": "vllm:prefix_cache_hits_total",
    "queries": "vllm:prefix_cache_queries_total",
}


async def counted(port: int) -> dict[str, int]:
    """An engine's counters."""
    return {name: await num_counted(port, full) for name, full in _COUNTERS.items()}


def figures_of(
    name: str,
    asked: Sequence[Asked],
    counts: Sequence[Mapping[str, int]],
    options: argparse.Namespace,
) -> RealFigures:
    slow, window = options.slow, [one for one in asked if one.counts]
    firsts = sorted(one.first_token_seconds / slow for one in window)
    known = [one for one in firsts if one < inf]
    good = [one for one in window if one.is_good(slow)]
    p50, p99 = firsts[len(firsts) // 2], firsts[int(0.99 * len(firsts))]
    answered = [one["answered"] for one in counts]
    return RealFigures(
        case="shared prefixes" if options.prefixes else "mixed",
        router=name,
        slow=slow,
        requests_per_second=round(len(window) / options.seconds * slow, 2),
        num_requests=len(window),
        goodput=round(sum(one.num_tokens for one in good) / options.seconds * slow, 1),
        good_share=round(len(good) / len(window), 4),
        refused_share=round(sum(one.status != 200 for one in window) / len(window), 4),
        broken=sum(one.status == 200 and not one.is_whole for one in window),
        p50_first_token_seconds=round(p50, 3) if p50 < inf else None,
        p99_first_token_seconds=round(p99, 3) if p99 < inf else None,
        p99_answered_seconds=round(known[int(0.99 * len(known))], 3),
        answered_by=answered,
        max_vs_mean=round(max(answered) * len(answered) / max(sum(answered), 1), 3),
        hit_share=round(
            sum(one["hits"] for one in counts) / max(sum(one["queries"] for one in counts), 1), 4
        ),
        preemptions=sum(one["preempted"] for one in counts),
    )


def keep(path: Path, one: RealFigures) -> None:
    """Put it into a file, in place of the same router's there."""
    kept = json.loads(path.read_text()) if path.exists() else []
    kept = [other for other in kept if (other["case"], other["router"]) != (one.case, one.router)]
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
    parser.add_argument("--prefixes", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    raise_open_files(4096)
    rate = options.rate
    if not rate and not options.prefixes:
        rate = _LOAD * sum(_CASE.capacity_of(gpu) for gpu in _MIXED)
    for name in options.routers:
        one = uvloop.run(measure(name, (rate or 0.0) / options.slow, options))
        print(one, flush=True)
        if options.json:
            keep(options.json, one)


if __name__ == "__main__":
    main()
