"""Figures of one router, and what is made of those of all."""

import argparse
import asyncio
import os
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gateway_load import (
    connect,
    latency,
    seconds_until_freed,
    short,
    stopped_readers,
    streams,
)

Figures = dict[str, Any]

_TICKS = os.sysconf("SC_CLK_TCK")
_NUM_STOPPED = 20
_COLUMNS = {
    "short_cpu_us": "a short answer, us",
    "chunk_cpu_us": "a chunk, us",
    "kb_per_stream": "a stream, KB",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "lag_p99_ms": "lag p99, ms",
    "num_missing_chunks": "missing chunks",
    "freed_after_ms": "freed, ms",
    "kb_per_stopped_reader": "a stopped reader, KB",
}


async def measure_latency(port: int, options: argparse.Namespace) -> Figures:
    """Of short answers at 200 requests a second."""
    await short(port, 16, 1600)
    taken = await latency(port, 200, options.seconds)
    return {
        "p50_ms": round(1000 * median(taken), 3),
        "p99_ms": round(1000 * taken[int(0.99 * len(taken))], 3),
    }


async def measure_short(pid: int, port: int, num_requests: int) -> Figures:
    """Of short answers, as many as can be."""
    before = _cpu_seconds(pid)
    per_second = await short(port, 32, num_requests)
    seconds = _cpu_seconds(pid) - before
    return {
        "short_per_second": round(per_second),
        "short_cpu_us": round(1e6 * seconds / num_requests, 1),
    }


async def measure(pid: int, port: int, engine: int, options: argparse.Namespace) -> Figures:
    """All figures of one router."""
    figures = await measure_latency(port, options)
    figures |= await measure_short(pid, port, options.requests)
    before, idle_kb = _cpu_seconds(pid), _memory_kb(pid)
    num_each = int(20 * options.seconds) + 20
    running = asyncio.create_task(streams(port, options.streams, num_each))
    await asyncio.sleep(options.seconds / 2 + 1)
    figures["kb_per_stream"] = round((_memory_kb(pid) - idle_kb) / options.streams, 1)
    num_chunks, lags = await running
    figures["num_missing_chunks"] = options.streams * num_each - num_chunks
    figures["chunk_cpu_us"] = round(1e6 * (_cpu_seconds(pid) - before) / num_chunks, 1)
    figures["lag_p99_ms"] = round(1000 * lags[int(0.99 * len(lags))], 1)
    idle_kb = _memory_kb(pid)
    async with stopped_readers(port, _NUM_STOPPED):
        await asyncio.sleep(options.seconds / 2)
        grown = _memory_kb(pid) - idle_kb
    figures["kb_per_stopped_reader"] = round(grown / _NUM_STOPPED, 1)
    freed = await seconds_until_freed(port, 50, partial(_num_streams_at, engine))
    figures["freed_after_ms"] = round(1000 * freed, 1)
    return figures


def join(rounds: list[Figures]) -> Figures:
    """The median of each figure; of memory and of what is missing, the largest."""
    return {
        name: max(values) if name.startswith(("kb_", "num_")) else median(values)
        for name in rounds[0]
        if (values := [one[name] for one in rounds])
    }


def compare(own: Figures, results: dict[str, Figures]) -> Figures:
    """The figures that have goals."""
    alone = results["engine alone"]
    figures: Figures = {
        "added_p50_ms": round(own["p50_ms"] - alone["p50_ms"], 3),
        "added_p99_ms": round(own["p99_ms"] - alone["p99_ms"], 3),
        "kb_per_stream": own["kb_per_stream"],
        "num_missing_chunks": own["num_missing_chunks"],
        "freed_after_ms": own["freed_after_ms"],
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


def table(results: dict[str, Figures]) -> str:
    """All routers side by side, as Markdown; what was not measured is a dash."""
    rows = [["", *_COLUMNS.values()], ["---", *["---:" for _ in _COLUMNS]]]
    for name, figures in results.items():
        rows.append([name, *(str(figures.get(column, "-")) for column in _COLUMNS)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _family(pid: int) -> list[int]:
    """A router's processes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _cpu_seconds(pid: int) -> float:
    ticks = 0
    for one in _family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def _memory_kb(pid: int) -> int:
    texts = [Path(f"/proc/{one}/status").read_text() for one in _family(pid)]
    return sum(int(text.partition("VmRSS:")[2].split()[0]) for text in texts)


async def _num_streams_at(engine: int) -> int:
    """How many streams the engine works on."""
    client = await connect(engine)
    await client.ask(b"GET /streams HTTP/1.1\r\n\r\n")
    client.transport.close()
    return int(client.body().rstrip(b"}"))
