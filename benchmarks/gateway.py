"""The gateway beside vllm-router, in one run: `python -m benchmarks.gateway [--router PROGRAM]`.

Engine, router and load are three programs on one machine, so that requests per second say little
where cores are few or shared. What is compared is the processor time of the router alone, which the
system counts: for each short answer, and for each chunk of many streams at once. Latency is that of
short answers at 200 a second, less what the engine alone takes in the same run.

`--router` names `vllm-router` as its package installs it (`uv tool install vllm-router==0.1.17`).
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import uvloop

from quire_engine.server.listener import raise_open_files

_TICKS = os.sysconf("SC_CLK_TCK")
_HEAD = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def request_of(**changes: object) -> bytes:
    body = json.dumps({"model": "m", "prompt": "word " * 100, "max_tokens": 1} | changes)
    return f"{_HEAD}content-length: {len(body)}\r\n\r\n{body}".encode()


class Client(asyncio.Protocol):
    """Sends a request, and calls back when its answer is complete."""

    def __init__(self, end: bytes) -> None:
        self._end = end
        self._received = bytearray()
        self.num_chunks = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("closed before the answer was complete"))

    def data_received(self, data: bytes) -> None:
        self.num_chunks += data.count(b"data: {")
        self._received += data
        if self._received.endswith(self._end):
            if not self._received.startswith(b"HTTP/1.1 200"):
                self.done.set_exception(ValueError(bytes(self._received[:300])))
            else:
                self.done.set_result(None)
        del self._received[12:-400]

    async def ask(self, request: bytes) -> None:
        self._received.clear()
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.done


async def connect(port: int, end: bytes) -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(end), "127.0.0.1", port)
    return client


async def short(port: int, num_connections: int, num_requests: int) -> float:
    """Requests per second, each connection asking as fast as it is answered."""
    request = request_of()

    async def ask_on() -> None:
        client = await connect(port, b"}")
        for _ in range(num_requests // num_connections):
            await client.ask(request)
        client.done = asyncio.get_running_loop().create_future()
        client.done.set_result(None)
        client.transport.close()

    started_at = time.perf_counter()
    await asyncio.gather(*(ask_on() for _ in range(num_connections)))
    return num_requests / (time.perf_counter() - started_at)


async def latency(port: int, rate: float, seconds: float) -> list[float]:
    """Seconds of short answers, sent at an even rate whatever is answered."""
    clients = [await connect(port, b"}") for _ in range(32)]
    request, taken, tasks = request_of(), [], []

    async def ask(client: Client) -> None:
        started_at = time.perf_counter()
        await client.ask(request)
        taken.append(time.perf_counter() - started_at)
        clients.append(client)

    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(begin + number / rate - loop.time(), 0))
        if clients:
            tasks.append(asyncio.create_task(ask(clients.pop(0))))
    await asyncio.gather(*tasks)
    for client in clients:
        client.transport.close()
    return sorted(taken)


async def streams(port: int, num_streams: int, num_chunks: int) -> int:
    """Chunks that came, of so many streams at once."""
    request = request_of(stream=True, max_tokens=num_chunks)

    async def follow() -> int:
        client = await connect(port, b"0\r\n\r\n")
        await client.ask(request)
        client.transport.close()
        return client.num_chunks

    return sum(await asyncio.gather(*(follow() for _ in range(num_streams))))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


@contextmanager
def program(*command: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | (env or {})
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def first_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().split("127.0.0.1:")[1].split("/")[0])


async def until_it_answers(port: int) -> None:
    for _ in range(600):
        try:
            client = await connect(port, b"}")
            await client.ask(request_of())
            client.transport.close()
        except (OSError, ValueError):
            await asyncio.sleep(0.1)
        else:
            return
    raise SystemExit(f"nothing answers on port {port}")


async def measure(pid: int | None, port: int, options: argparse.Namespace) -> dict[str, float]:
    """All figures of one router; of the engine alone without a process id."""
    await short(port, 16, 500)
    taken = await latency(port, 200, options.seconds)
    figures = {
        "p50_ms": round(1000 * median(taken), 3),
        "p99_ms": round(1000 * taken[int(0.99 * len(taken))], 3),
    }
    if pid is None:
        return figures
    before = cpu_seconds(pid)
    figures["short_per_second"] = round(await short(port, 32, options.requests))
    figures["short_cpu_us"] = round(1e6 * (cpu_seconds(pid) - before) / options.requests, 1)
    before, idle_kb = cpu_seconds(pid), memory_kb(pid)
    running = asyncio.create_task(streams(port, options.streams, int(20 * options.seconds)))
    await asyncio.sleep(options.seconds / 2)
    figures["kb_per_stream"] = round((memory_kb(pid) - idle_kb) / options.streams, 1)
    num_chunks = await running
    wanted = options.streams * int(20 * options.seconds)
    if num_chunks != wanted:
        raise SystemExit(f"{num_chunks} chunks came of {wanted}")
    figures["chunk_cpu_us"] = round(1e6 * (cpu_seconds(pid) - before) / num_chunks, 1)
    return figures


async def run(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    with program(sys.executable, "-m", "benchmarks.gateway_upstream", "0") as engine:
        upstream = first_port(engine)
        results["engine alone"] = await measure(None, upstream, options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "routing.json"
            path.write_text(json.dumps(document(upstream)))
            flags = ("--routing", str(path), "--port", "0", "--management-port", "0")
            with program(sys.executable, "-m", "quire_gateway", *flags) as gateway:
                port = first_port(gateway)
                await until_it_answers(port)
                results["quire"] = await measure(gateway.pid, port, options)
        if options.router:
            port = upstream + 1
            command: tuple[str, ...] = (options.router, "--host", "127.0.0.1", "--port", str(port))
            command += ("--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin")
            command += ("--prometheus-port", str(upstream + 2), "--log-level", "error")
            with program(*command, env={"TOKIO_WORKER_THREADS": "1"}) as router:
                await until_it_answers(port)
                results["vllm-router"] = await measure(router.pid, port, options)
    return results


def document(port: int) -> dict[str, object]:
    limits = {"max_queue_seconds": 30, "max_waiting_requests": 1000}
    return {
        "schema_version": 1,
        "namespace": "default",
        "name": "m",
        "model_names": ["m"],
        "thresholds": {"admission": 0.95, "background": 0.8} | limits,
        "engines": [{"address": f"127.0.0.1:{port}"}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", help="vllm-router's program")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    raise_open_files(3 * options.streams)
    print(json.dumps(uvloop.run(run(options)), indent=2))


if __name__ == "__main__":
    main()
