"""Engines and gateways that die, hang, flap and restart under load.

Where the first byte of an answer had not gone out, no client notices any of it. A stream that had
begun ends with an error event, and only with an engine that died or hung.
"""

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from quire_engine.profiles.step_time import constant_step_time
from tests.api.gateway_load import NUM_CLIENTS, GatewayLoad
from tests.api.gateways import (
    FakeEngines,
    FakeRequest,
    RunningGateway,
    answer_ok,
    place,
    service,
)
from tests.api.lossy import LossyNetwork
from tests.api.servers import SIMULATED, RunningServer, wait_until, wait_until_async
from tests.unit.gateway.builders import state

ENGINE = (*SIMULATED, "--simulated-step-seconds", "0.01")
QUICK_DRAIN = ("--drain-grace-seconds", "1")
SILENCE = ("--silence-seconds", "5", "--stale-seconds", "3")


@contextlib.contextmanager
def running(*servers: RunningServer) -> Iterator[None]:
    """All of them, started side by side."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
        for server in servers:
            stack.enter_context(server)
        yield


def engines(count: int, *flags: str) -> list[RunningServer]:
    return [RunningServer(*ENGINE, *flags) for _ in range(count)]


async def until_eligible(gateway: RunningGateway, count: int) -> None:
    await wait_until_async(lambda: gateway.num_eligible() == count)


async def test_a_killed_engine_costs_the_streams_that_it_had_begun_and_nothing_else(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    first, second = engines(2)
    with running(first, second), RunningGateway(tmp_path / "r", [service([first, second])]) as one:
        await until_eligible(one, 2)
        load = GatewayLoad([one.url], http)
        async with load.going_on():
            first.kill()
            await until_eligible(one, 1)
            await load.until_more()
        await asyncio.to_thread(second.wait_until_idle)
    assert load.failures == []
    assert load.counts["lost"] <= NUM_CLIENTS / 2


async def test_a_stopped_engine_is_left_and_taken_back(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    first, second = engines(2)
    with (
        running(first, second),
        RunningGateway(tmp_path / "r", [service([first, second])], *SILENCE) as one,
    ):
        await until_eligible(one, 2)
        load = GatewayLoad([one.url], http)
        core = first.core_pid()
        async with load.going_on():
            first.stop(signal.SIGSTOP)
            await until_eligible(one, 1)
            await load.until_more()
            first.stop(signal.SIGCONT)
            await until_eligible(one, 2)
            await load.until_more()
        assert first.core_pid() == core
        await asyncio.to_thread(first.wait_until_idle)
    assert load.failures == []
    assert load.counts["lost"] <= NUM_CLIENTS / 2


async def test_a_flapping_engine_is_asked_less_and_less(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    async def every_third(request: FakeRequest) -> None:
        if len(request.engine.requests) % 3 == 0:
            await answer_ok(request)
        request.writer.close()

    (steady,) = engines(1)
    with running(steady), FakeEngines() as fakes:
        flapping = fakes.add(every_third)
        with RunningGateway(tmp_path / "r", [service([flapping, steady])]) as one:
            await until_eligible(one, 2)
            for _ in range(60):
                body = {"model": "llama3-8b", "prompt": "Once", "max_tokens": 2}
                answer = await http.post(one.url + "/v1/completions", json=body)
                assert answer.status_code == 200
    assert len(flapping.requests) < 45


async def test_engines_are_replaced_one_after_the_other_and_nothing_is_lost(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    first, second, third = engines(3, *QUICK_DRAIN)
    with (
        running(first, second, third),
        RunningGateway(tmp_path / "r", [service([first, second])]) as one,
    ):
        await until_eligible(one, 2)
        load = GatewayLoad([one.url], http)
        async with load.going_on():
            for old, places in ((first, [second, third]), (second, [third])):
                one.write([service([old, *places])])
                await until_eligible(one, len(places) + 1)
                old.stop()
                await until_eligible(one, len(places))
                assert await asyncio.to_thread(old.process.wait, 120) == 0
                one.write([service(places)])
                await load.until_more()
    assert load.failures == []
    assert load.counts["lost"] == 0


async def test_gateways_are_replaced_one_after_the_other_and_nothing_is_lost(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    (engine,) = engines(1)
    grace = ("--drain-grace-seconds", "3")
    with running(engine):
        documents = [service([engine])]
        gateways = [RunningGateway(tmp_path / f"r{n}", documents, *grace) for n in range(3)]
        with running(*gateways):
            for one in gateways:
                await until_eligible(one, 1)
            load = GatewayLoad([one.url for one in gateways[:2]], http)
            async with load.going_on():
                for number, old in enumerate(gateways[:2]):
                    old.stop()
                    await wait_until_async(lambda old=old: not old.is_ready())  # type: ignore[misc]
                    # what a balancer does that looks at /readyz
                    load.urls[number] = gateways[2].url
                    assert await asyncio.to_thread(old.process.wait, 120) == 0
                    await load.until_more()
    assert load.failures == []
    assert load.counts["lost"] == 0


async def test_a_network_that_loses_and_cuts_costs_time_and_no_answers(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    first, second = engines(2)
    with running(first, second), LossyNetwork(seed=5) as network:
        # with resets at both, both might be shut out at once
        places = [
            {"address": network.address_of(place(engine)["address"], resets=engine is first)}
            for engine in (first, second)
        ]
        with RunningGateway(tmp_path / "r", [service([]) | {"engines": places}]) as one:
            await until_eligible(one, 2)
            load = GatewayLoad([one.url], http)
            async with load.going_on():
                await wait_until_async(lambda: network.num_resets >= 2)
                await load.until_more()
    assert load.failures == []
    assert load.counts["lost"] == 0


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def told(**blocks: int) -> bytes:
    """The state of an engine, with these counts of blocks."""
    plain = state(step_time=constant_step_time(0.0))
    changed = plain.__replace__(blocks=plain.blocks.__replace__(**blocks))
    return HEAD + b"event: state\ndata: %b\n\n" % msgspec.json.encode(changed)


def told_to_take(seconds: float) -> bytes:
    """The state of an engine whose steps take so long for each sequence."""
    plain = json.loads(told().partition(b"data: ")[2])
    plain["step_time"]["seconds_per_sequence"] = seconds
    return HEAD + b"event: state\ndata: %b\n\n" % json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("says", "is_read"),
    [
        (b"garbage\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000, False),
        (HEAD + b"event: state\ndata: {}\n\n", True),
        (told(total=-5, held=-10, free=5), True),
        (told(total=1 << 62, free=1 << 62), True),
        (told(free=1 << 20), True),
        (told_to_take(-1.0), True),
    ],
    ids=[
        *("garbage", "endless-head", "no-state"),
        *("below-0", "beyond-any-machine", "no-sum", "steps-below-0"),
    ],
)
def test_an_engine_whose_state_is_none_gets_nothing(
    tmp_path: Path, says: bytes, *, is_read: bool
) -> None:
    (steady,) = engines(1)

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked.append(await reader.readuntil(b"\r\n"))
            writer.write(says)
            await reader.read()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    asked: list[bytes] = []
    with running(steady), FakeEngines() as fakes:
        broken = fakes.listen(tell)
        places = [{"address": broken}, place(steady)]
        with RunningGateway(tmp_path / "r", [service([]) | {"engines": places}]) as one:
            wait_until(lambda: one.num_eligible() == 1)
            body = {"model": "llama3-8b", "prompt": "Once", "max_tokens": 2}
            answers = [one.post("/v1/completions", body).status_code for _ in range(10)]
            wait_until(lambda: len(asked) > 2)
            page = one.manage("/metrics").text
    (count,) = re.findall(r'bad_states_total\{service="default/chat",taken="refused"\} (\d+)', page)
    assert (int(count) > 0) == is_read
    assert answers == [200] * 10
    assert all(line.startswith(b"GET /state/stream ") for line in asked)
