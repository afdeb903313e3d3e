"""What clients notice of faults: `python -m benchmarks.gateway_faults [--json FILE] [CASE ...]`.

Real gateways and simulated engines as processes, under 24 clients that stream one answer after the
other. Packets are lost by the kernel's netfilter, in a network namespace of its own that leads
nowhere. Counted are, of all requests,

    errors    what went wrong before the first byte, by kind: there should be none
    lost      streams that ended with an error event after it
    broken    streams that ended with nothing
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from tests.api.gateways import RunningGateway, service
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until_async

_NUM_CLIENTS = 24
_STEADY_SECONDS = 3.0
_LOSS = 0.05
_FLAPS = 8
_RESULT = Path(__file__).parent / "results" / "gateway_faults.json"
_ENGINE = (*SIMULATED, "--simulated-step-seconds", "0.02", "--drain-grace-seconds", "1")
_INSIDE = "QUIRE_BENCHMARK_NAMESPACE"


@dataclass(kw_only=True)
class FaultFigures:
    """What clients got while something was wrong."""

    case: str
    num_faults: int
    num_requests: int = 0
    num_lost: int = 0
    num_broken: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    p50_first_byte_seconds: float = 0.0
    worst_first_byte_seconds: float = 0.0


class Clients:
    """They ask on, each with an own length of answers, until they are told to stop.

    Parameters
    ----------
    urls
        Of gateways, in turn; a client whose connection is refused goes to the next one.
    """

    def __init__(self, urls: list[str], http: httpx.AsyncClient) -> None:
        self.urls = urls
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.first_bytes: list[float] = []
        self._http = http
        self._is_over = False

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for number in range(_NUM_CLIENTS):
                group.create_task(self._ask_on(number))
            await asyncio.sleep(_STEADY_SECONDS)
            yield
            await asyncio.sleep(_STEADY_SECONDS)
            self._is_over = True

    async def _ask_on(self, number: int) -> None:
        turn = number
        while not self._is_over:
            turn += 1
            try:
                self.counts[await self._ask(turn, 1 + 5 * number)] += 1
            except httpx.ConnectError:
                if len(self.urls) == 1:
                    self.errors["connection refused"] += 1
                await asyncio.sleep(0.01)
            except httpx.HTTPError as error:
                self.errors[type(error).__name__] += 1

    async def _ask(self, turn: int, num_tokens: int) -> str:
        body = {"model": MODEL, "prompt": f"Once {turn}", "max_tokens": num_tokens, "stream": True}
        url = self.urls[turn % len(self.urls)] + "/v1/completions"
        began, text = time.monotonic(), ""
        async with self._http.stream("POST", url, json=body) as answer:
            if answer.status_code != 200:
                self.errors[f"status {answer.status_code}"] += 1
                return "refused"
            try:
                async for piece in answer.aiter_text():
                    if not text:
                        self.first_bytes.append(time.monotonic() - began)
                    text += piece
            except httpx.HTTPError:
                if not text:
                    raise
                return "broken"
        if '"error"' in text:
            return "lost"
        return "finished" if text.endswith("data: [DONE]\n\n") else "broken"


class Setup:
    """Engines, gateways and clients of one case."""

    def __init__(self, stack: ExitStack, folder: Path, http: httpx.AsyncClient) -> None:
        self._stack, self._folder, self._http = stack, folder, http
        self.clients: Clients

    def engines(self, count: int) -> list[RunningServer]:
        started = [RunningServer(*_ENGINE) for _ in range(count)]
        return [self._keep(one) for one in started]

    def engine_again(self, old: RunningServer) -> RunningServer:
        """Another one at the same address."""
        port = old.url.rpartition(":")[2]
        return self._keep(RunningServer(*_ENGINE, "--port", port))

    async def gateways(
        self, engines: Sequence[RunningServer], *flags: str, count: int = 1
    ) -> list[RunningGateway]:
        documents = [service(engines)]
        log = self._folder / "log"
        paths = [self._folder / f"routing-{number}.json" for number in range(count)]
        started = [
            RunningGateway(path, documents, "--drain-grace-seconds", "2", *flags, stderr=log)
            for path in paths
        ]
        for one in started:
            self._stack.callback(one.kill)
            self._stack.enter_context(one)
            await until_eligible(one, len(engines))
        self.clients = Clients([one.url for one in started], self._http)
        return started

    def _keep(self, engine: RunningServer) -> RunningServer:
        self._stack.callback(engine.kill)
        return self._stack.enter_context(engine)


async def until_eligible(gateway: RunningGateway, count: int) -> None:
    await wait_until_async(lambda: gateway.num_eligible() == count, seconds=120)


async def until_ended(pid: int) -> None:
    await wait_until_async(lambda: not Path(f"/proc/{pid}").exists(), seconds=120)


def lose_packets(engines: Sequence[RunningServer]) -> None:
    """Drop some of the packets to and from engines, as they arrive."""
    chance = ("-m", "statistic", "--mode", "random", "--probability", str(_LOSS))
    for engine in engines:
        for end in ("--sport", "--dport"):
            rule = ("-p", "tcp", end, engine.url.rpartition(":")[2], *chance, "-j", "DROP")
            subprocess.run(("iptables", "-A", "INPUT", *rule), check=True)


def stop_losing() -> int:
    """Drop no more; returns how many were."""
    listing = ("iptables", "-L", "INPUT", "-v", "-x", "-n")
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    subprocess.run(("iptables", "-F", "INPUT"), check=True)
    return sum(int(line.split()[0]) for line in listed.splitlines() if "DROP" in line)


async def killed_engines(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines)
    async with setup.clients.asking():
        for number in range(3):
            engines[number].kill()
            await until_eligible(gateway, 2)
            engines[number] = await asyncio.to_thread(setup.engine_again, engines[number])
            await until_eligible(gateway, 3)
    return 3


async def stopped_engine(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines)
    async with setup.clients.asking():
        engines[0].stop(signal.SIGSTOP)
        await asyncio.sleep(15.0)  # beyond the time after which it is believed to hang
        engines[0].stop(signal.SIGCONT)
        await until_eligible(gateway, 3)
    return 1


async def lost_packets(setup: Setup) -> int:
    engines = setup.engines(3)
    await setup.gateways(engines)
    await asyncio.to_thread(lose_packets, engines)
    async with setup.clients.asking():
        await asyncio.sleep(15.0)
    return await asyncio.to_thread(stop_losing)


async def flapping_endpoint(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines)
    async with setup.clients.asking():
        for _ in range(_FLAPS):
            gateway.write([service(engines[1:])])
            await until_eligible(gateway, 2)
            gateway.write([service(engines)])
            await until_eligible(gateway, 3)
    return _FLAPS


async def flapping_engine(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines)
    async with setup.clients.asking():
        for _ in range(_FLAPS):
            engines[0].kill()
            engines[0] = await asyncio.to_thread(setup.engine_again, engines[0])
        await until_eligible(gateway, 3)
    return _FLAPS


async def rolled_engines(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines)
    async with setup.clients.asking():
        for number in range(3):
            old = engines[number]
            (engines[number],) = await asyncio.to_thread(setup.engines, 1)
            gateway.write([service([*engines, old])])
            await until_eligible(gateway, 4)
            old.stop()
            await until_eligible(gateway, 3)
            await asyncio.to_thread(old.process.wait, 120)
            gateway.write([service(engines)])
    return 3


async def rolled_gateways(setup: Setup) -> int:
    engines = setup.engines(3)
    *old, fresh = await setup.gateways(engines, count=3)
    setup.clients.urls = [one.url for one in old]
    async with setup.clients.asking():
        for number, one in enumerate(old):
            one.stop()
            await wait_until_async(lambda one=one: not one.is_ready())  # type: ignore[misc]
            setup.clients.urls[number] = fresh.url  # as a balancer that looks at /readyz
            await asyncio.to_thread(one.process.wait, 120)
    return len(old)


async def killed_decider(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines, "--workers", "2")
    async with setup.clients.asking():
        for _ in range(3):
            (decider,) = gateway.children("decider")
            os.kill(decider, signal.SIGKILL)
            await until_ended(decider)
            await wait_until_async(lambda: _is_eligible(gateway, 3), seconds=120)
    return 3


async def ended_workers(setup: Setup) -> int:
    engines = setup.engines(3)
    (gateway,) = await setup.gateways(engines, "--workers", "2")
    async with setup.clients.asking():
        for worker in gateway.children("worker"):
            os.kill(worker, signal.SIGTERM)
            await until_ended(worker)
    return 2


def _is_eligible(gateway: RunningGateway, count: int) -> bool:
    try:
        return gateway.num_eligible() == count
    except httpx.HTTPError:
        return False


CASES: dict[str, Callable[[Setup], Awaitable[int]]] = {
    "engines killed (-9), back at the same address": killed_engines,
    "an engine stopped (SIGSTOP) for 15 s": stopped_engine,
    f"{100 * _LOSS:g} % of the packets lost": lost_packets,
    "an endpoint that comes and goes": flapping_endpoint,
    "an engine that dies again and again": flapping_engine,
    "engines replaced one by one": rolled_engines,
    "gateways replaced one by one": rolled_gateways,
    "the deciding process killed (-9)": killed_decider,
    "workers told to end": ended_workers,
}


async def measure(name: str) -> FaultFigures:
    """Run one case."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as http:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            setup = Setup(stack, folder, http)
            num_faults = await CASES[name](setup)
            clients = setup.clients
    firsts = sorted(clients.first_bytes)
    return FaultFigures(
        case=name,
        num_faults=num_faults,
        num_requests=clients.counts.total() + clients.errors.total() - clients.counts["refused"],
        num_lost=clients.counts["lost"],
        num_broken=clients.counts["broken"],
        errors=dict(clients.errors),
        p50_first_byte_seconds=round(firsts[len(firsts) // 2], 3),
        worst_first_byte_seconds=round(firsts[-1], 3),
    )


def describe(one: FaultFigures) -> str:
    return (
        f"{one.case:48s} {one.num_faults:5d} faults {one.num_requests:5d} requests"
        f" {sum(one.errors.values()):3d} errors before the first byte {one.errors or ''}"
        f" {one.num_lost:3d} lost after it {one.num_broken} broken; first byte p50"
        f" {one.p50_first_byte_seconds:.3f} worst {one.worst_first_byte_seconds:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="words of the cases to run; all if none")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if _INSIDE not in os.environ:
        unshare = shutil.which("unshare")
        if unshare is None:
            raise SystemExit("unshare is needed: packets are lost in a namespace of their own")
        command = (sys.executable, "-m", "benchmarks.gateway_faults", *sys.argv[1:])
        os.execve(unshare, (unshare, "-rn", *command), os.environ | {_INSIDE: "yes"})
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    results = []
    for name in CASES:
        if not options.cases or any(word in name for word in options.cases):
            results.append(asyncio.run(measure(name)))
            print(describe(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
