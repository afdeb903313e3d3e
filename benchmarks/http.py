"""Tokens per second over HTTP, with a model that costs no time.

`python -m benchmarks.http [--json FILE]` serves a simulated model with steps of zero seconds and
streams chat completions from it with 1 to 256 connections at once, or with other numbers of them
(`--streams`) for some time (`--seconds`). So what is measured is all
that surrounds the model: HTTP, checking, tokenizing, the core's step loop, scheduling, messages,
detokenizing, events. Server, core and load generator are three processes (with `--api-workers`,
more of the first); the processor time of each kind is reported, for the generator's share is not
the server's doing, and the memory that server and core take more than before, at its peak, for each
stream.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SERVE = (
    *("-m", "quire_engine", "--simulate", "h100", "--model-shape", "llama3-8b"),
    # every stream of the largest run finds a seat and blocks: nobody is measured waiting
    *("--max-num-seqs", "2048", "--max-num-blocks", "65536"),
    *("--port", "0", "--simulated-step-seconds"),
)
_READY_LINE = re.compile(r"ready: (\S+) on (http://[^/]+)")
_HEADLINE_STREAMS = 100
"""Streams at once of the figure that has a target."""
_TARGET_TOKENS_PER_SECOND = 8000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Server:
    """A running server and its core process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        match = None
        while match is None:
            line = process.stdout.readline()
            if not line:
                raise SystemExit("the server did not start; its messages are above")
            match = _READY_LINE.search(line)
        self.model, self.url = match.groups()
        self.core_pid = _children(process.pid, "quire_engine.core")[0]
        workers = _children(process.pid, "quire_engine.workers")
        self.api_pids = (process.pid, *workers)

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time so far of all that answers HTTP, and of the core."""
        api = sum(_cpu_seconds(pid) for pid in self.api_pids)
        return {"api": api, "core": _cpu_seconds(self.core_pid)}

    def watch_memory(self) -> int:
        """Begin to look for the peak of memory; returns what is resident now, in bytes."""
        for pid in self._pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        return sum(_memory_bytes(pid, "VmRSS") for pid in self._pids())

    def peak_memory(self) -> int:
        """The most that was resident since `watch_memory`, in bytes."""
        return sum(_memory_bytes(pid, "VmHWM") for pid in self._pids())

    def _pids(self) -> tuple[int, ...]:
        return *self.api_pids, self.core_pid


def _memory_bytes(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    assert match is not None
    return 1024 * int(match[1])


def _children(pid: int, module: str) -> list[int]:
    """Processes of a server that run this module."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    wanted = f"\0{module}\0".encode()
    return [int(one) for one in children if wanted in Path(f"/proc/{one}/cmdline").read_bytes()]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


@contextmanager
def run_server(step_seconds: float, api_workers: int) -> Iterator[Server]:
    """Serve for as long as the block runs."""
    command = [sys.executable, *_SERVE, str(step_seconds), "--api-workers", str(api_workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Server(process)
    finally:
        process.terminate()
        process.wait(timeout=30)


def measure(
    server: Server, *, num_streams: int, num_tokens: int, for_seconds: float | None = None
) -> dict[str, Any]:
    """Stream from `num_streams` connections; returns rates, processor shares and memory."""
    num_requests = max(8, 4 * num_streams)
    options: dict[str, float] = {
        "streams": num_streams,
        "requests": num_requests,
        "tokens": num_tokens,
    }
    if for_seconds is not None:
        options["seconds"] = for_seconds
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    memory_before = server.watch_memory()
    before = server.cpu_seconds()
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_load", server.url, server.model, *flags],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    after = server.cpu_seconds()
    load = json.loads(output)
    if load["num_failures"]:
        raise SystemExit(f"{load['num_failures']} streams failed, such as: {load['failures'][0]}")
    cpu = {name: after[name] - before[name] for name in before} | {"load": load["cpu_seconds"]}
    return {
        "streams": num_streams,
        "requests": load["requests"],
        "seconds": load["seconds"],
        "tokens_per_request": num_tokens,
        "streamed_tokens_per_second": load["tokens"] / load["seconds"],
        "events_per_second": load["events"] / load["seconds"],
        "first_byte_seconds_p50": load["first_byte_seconds_p50"],
        "first_byte_seconds_p99": load["first_byte_seconds_p99"],
        "cpu_seconds": cpu,
        "load_generator_cpu_share": cpu["load"] / sum(cpu.values()),
        "api_cpu_microseconds_per_token": 1e6 * cpu["api"] / load["tokens"],
        "memory_bytes_per_stream": (server.peak_memory() - memory_before) / num_streams,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, _HEADLINE_STREAMS, 256])
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each answer")
    parser.add_argument("--seconds", type=float, help="send requests for so long, of each number")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="time of a step")
    parser.add_argument("--api-workers", type=int, default=1, help="processes that answer HTTP")
    arguments = parser.parse_args()
    with run_server(arguments.step_seconds, arguments.api_workers) as server:
        measure(server, num_streams=_HEADLINE_STREAMS, num_tokens=64)  # imports, caches, sockets
        runs = []
        for num_streams in arguments.streams:
            run = measure(
                server,
                num_streams=num_streams,
                num_tokens=arguments.tokens,
                for_seconds=arguments.seconds,
            )
            runs.append(run)
            print(_describe(run), flush=True)
    headline = max(runs, key=lambda run: run["streams"] == _HEADLINE_STREAMS)
    figures = {
        "streamed_tokens_per_second": headline["streamed_tokens_per_second"],
        "events_per_second": headline["events_per_second"],
        "load_generator_cpu_share": headline["load_generator_cpu_share"],
        "streams": headline["streams"],
        "target_tokens_per_second": _TARGET_TOKENS_PER_SECOND,
        "api_workers": arguments.api_workers,
        "num_cores": len(os.sched_getaffinity(0)),
        "runs": runs,
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def _describe(run: dict[str, Any]) -> str:
    cpu = run["cpu_seconds"]
    return (
        f"{run['streams']:4} streams: {run['streamed_tokens_per_second']:8,.0f} tokens/s in"
        f" {run['events_per_second']:7,.0f} events/s, first byte p50"
        f" {1e3 * run['first_byte_seconds_p50']:.0f} ms; cpu s: api {cpu['api']:.2f},"
        f" core {cpu['core']:.2f}, load {cpu['load']:.2f}"
        f" ({run['load_generator_cpu_share']:.0%} of all),"
        f" {run['memory_bytes_per_stream'] / 1e3:.0f} kB a stream"
    )


if __name__ == "__main__":
    main()
