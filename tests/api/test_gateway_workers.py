"""A gateway of several processes: what one of them dying or hanging costs, under load.

That requests are answered as by one process is tested by all tests of gateways, with
`make test-workers`.
"""

import asyncio
import hashlib
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire_gateway.workers.snapshot import PUBLISH_SECONDS
from tests.api.gateway_load import GatewayLoad
from tests.api.gateways import (
    FakeEngines,
    FakeRequest,
    RunningGateway,
    answer_ok,
    service,
)
from tests.api.servers import (
    MODEL,
    SIMULATED,
    RunningServer,
    is_alive,
    wait_until,
    wait_until_async,
)

ENGINE = (*SIMULATED, "--simulated-step-seconds", "0.01")
TWO_WORKERS = ("--workers", "2")
NUM_REQUESTS = 24
"""Each goes to either worker: that all go to the same one does not happen."""
OK = {"from": "fake"}


@contextmanager
def two_engines() -> Iterator[list[RunningServer]]:
    first, second = RunningServer(*ENGINE), RunningServer(*ENGINE)
    try:
        with first, second:
            yield [first, second]
    finally:
        first.kill()
        second.kill()


async def until(gateway: RunningGateway, condition: Any) -> None:
    """Wait until the gateway's own account says so; its management may be between two lives."""

    def holds() -> bool:
        try:
            return bool(condition())
        except httpx.HTTPError:
            return False

    await wait_until_async(holds)


def counts(gateway: RunningGateway, name: str) -> Counter[str]:
    """A counter of the metrics page, by its labels."""
    found = re.findall(
        rf"^quire_gateway_{name}_total(\S+) (\S+)$", gateway.manage("/metrics").text, re.M
    )
    return Counter({labels: int(float(value)) for labels, value in found})


def in_flight(gateway: RunningGateway) -> int:
    """Requests at the only engine."""
    (engine,) = gateway.fleet()["engines"]
    found: int = engine["in_flight"]
    return found


def body() -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 2}


async def ask(http: httpx.AsyncClient, gateway: RunningGateway) -> Any:
    """Ask once, over a connection of its own."""
    headers = {"connection": "close"}
    answer = await http.post(gateway.url + "/v1/completions", json=body(), headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def when_allowed(request: FakeRequest) -> None:
    """Answer when the test says so."""
    await asyncio.to_thread(request.engine.may_go_on.wait, 120)
    await answer_ok(request)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_decider_that_ends_costs_no_request(
    http: httpx.AsyncClient, tmp_path: Path, number: signal.Signals
) -> None:
    with (
        two_engines() as engines,
        RunningGateway(tmp_path / "r", [service(engines)], *TWO_WORKERS) as one,
    ):
        await until(one, lambda: one.num_eligible() == 2)
        load = GatewayLoad([one.url], http)
        async with load.going_on():
            (decider,) = one.children("decider")
            os.kill(decider, number)
            await wait_until_async(lambda: not is_alive(decider))
            await load.until_more()
            await until(one, lambda: one.num_eligible() == 2)
            assert one.children("decider") != [decider]
            await load.until_more()
        assert load.failures == []
        assert load.counts["lost"] == 0
        # what workers counted is counted on, and what was not decided is demand, too
        answered = sum(counts(one, "requests").values())
        assert answered == load.counts.total()
        for engine in engines:
            await asyncio.to_thread(engine.wait_until_idle)


async def test_a_stopped_decider_costs_no_request(http: httpx.AsyncClient, tmp_path: Path) -> None:
    with (
        two_engines() as engines,
        RunningGateway(tmp_path / "r", [service(engines)], *TWO_WORKERS) as one,
    ):
        await until(one, lambda: one.num_eligible() == 2)
        load = GatewayLoad([one.url], http)
        async with load.going_on():
            (decider,) = one.children("decider")
            os.kill(decider, signal.SIGSTOP)
            await load.until_more()
            os.kill(decider, signal.SIGCONT)
            await until(one, lambda: one.num_eligible() == 2)
            await load.until_more()
        assert load.failures == []
        assert load.counts["lost"] == 0
        for engine in engines:
            await asyncio.to_thread(engine.wait_until_idle)


async def test_a_decider_that_hangs_for_good_is_replaced(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with FakeEngines() as fakes:
        engine = fakes.add(answer_ok)
        flags = (*TWO_WORKERS, "--silence-seconds", "3")
        with RunningGateway(tmp_path / "r", [service([engine])], *flags) as one:
            await until(one, lambda: one.num_eligible() == 1)
            (decider,) = one.children("decider")
            os.kill(decider, signal.SIGSTOP)
            assert await ask(http, one) == OK
            await wait_until_async(lambda: not is_alive(decider))
            await until(one, lambda: one.num_eligible() == 1)


async def test_a_killed_worker_costs_its_own_connections_and_nothing_else(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with FakeEngines() as fakes:
        engine = fakes.add(when_allowed)
        with RunningGateway(tmp_path / "r", [service([engine])], *TWO_WORKERS) as one:
            await until(one, lambda: one.num_eligible() == 1)
            asked = [asyncio.create_task(ask(http, one)) for _ in range(NUM_REQUESTS)]
            await until(one, lambda: in_flight(one) == NUM_REQUESTS)
            killed, other = one.children("worker")
            os.kill(killed, signal.SIGKILL)
            # what its requests took is given back at once, and not when they would have ended
            await until(one, lambda: in_flight(one) < NUM_REQUESTS)
            engine.may_go_on.set()
            results = await asyncio.gather(*asked, return_exceptions=True)
            failed = [isinstance(result, httpx.TransportError) for result in results]
            assert 0 < sum(failed) < NUM_REQUESTS
            assert all(result == OK for result in results if isinstance(result, dict))
            await until(one, lambda: in_flight(one) == 0)
            # whoever the system sends to the dead one's socket waits there for the next
            answers = await asyncio.gather(*(ask(http, one) for _ in range(NUM_REQUESTS)))
            assert answers == [OK] * NUM_REQUESTS
            await until(one, lambda: len(one.children("worker")) == 2)
            assert killed not in one.children("worker")
            assert other in one.children("worker")


async def test_a_worker_that_hangs_is_replaced(http: httpx.AsyncClient, tmp_path: Path) -> None:
    with FakeEngines() as fakes:
        engine = fakes.add(answer_ok)
        flags = (*TWO_WORKERS, "--silence-seconds", "3")
        with RunningGateway(tmp_path / "r", [service([engine])], *flags) as one:
            await until(one, lambda: one.num_eligible() == 1)
            stopped = one.children("worker")[0]
            os.kill(stopped, signal.SIGSTOP)
            answers = await asyncio.gather(*(ask(http, one) for _ in range(NUM_REQUESTS)))
            assert answers == [OK] * NUM_REQUESTS
            assert not is_alive(stopped)


async def test_a_worker_that_is_told_to_end_drains_and_costs_nothing(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    flags = (*TWO_WORKERS, "--drain-grace-seconds", "1")
    with (
        two_engines() as engines,
        RunningGateway(tmp_path / "r", [service(engines)], *flags) as one,
    ):
        await until(one, lambda: one.num_eligible() == 2)
        load = GatewayLoad([one.url], http)
        async with load.going_on():
            for _ in range(2):
                before = one.children("worker")
                os.kill(before[0], signal.SIGTERM)
                await until(one, lambda: not is_alive(before[0]))  # noqa: B023 - called at once
                await load.until_more()
                assert len(one.children("worker")) == 2
        assert load.failures == []
        assert load.counts["lost"] == 0


async def test_connections_of_a_worker_that_cannot_start_go_to_the_others(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    secret, log = tmp_path / "secret", tmp_path / "log"
    secret.write_text("s" * 64)
    flags = (*TWO_WORKERS, "--root-secret-file", str(secret))
    with FakeEngines() as fakes:
        engine = fakes.add(answer_ok)
        with RunningGateway(tmp_path / "r", [service([engine])], *flags, stderr=log) as one:
            await until(one, lambda: one.num_eligible() == 1)
            secret.unlink()
            os.kill(one.children("worker")[0], signal.SIGKILL)
            await wait_until_async(lambda: "cannot read" in log.read_text())
            await wait_until_async(lambda: log.read_text().count("ended with status 2") > 1)
            answers = await asyncio.gather(*(ask(http, one) for _ in range(NUM_REQUESTS)))
            assert answers == [OK] * NUM_REQUESTS
            secret.write_text("s" * 64)
            await wait_until_async(lambda: len(one.children("worker")) == 2)
            await until(one, lambda: one.manage("/readyz").status_code == 200)
            answers = await asyncio.gather(*(ask(http, one) for _ in range(NUM_REQUESTS)))
            assert answers == [OK] * NUM_REQUESTS


def test_metrics_are_those_of_all_workers(tmp_path: Path) -> None:
    with FakeEngines() as fakes:
        engine = fakes.add(answer_ok)
        with RunningGateway(tmp_path / "r", [service([engine])], *TWO_WORKERS) as one:
            wait_until(lambda: one.num_eligible() == 1)
            for _ in range(NUM_REQUESTS):
                assert one.post("/v1/completions", body()).json() == OK
            assert counts(one, "requests") == {
                '{service="default/chat",status="200"}': NUM_REQUESTS
            }
            page = one.manage("/metrics").text
            count = f'request_seconds_count{{service="default/chat"}} {float(NUM_REQUESTS)}'
            assert count in page
            assert sum(one.fleet()["demand"]["arrivals"]) == NUM_REQUESTS
        assert engine.num_connections == 2  # each has its own: both have taken some


async def test_what_workers_counted_is_there_when_they_have_ended(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with FakeEngines() as fakes:
        engine = fakes.add(answer_ok)
        flags = (*TWO_WORKERS, "--drain-grace-seconds", "0")
        with RunningGateway(tmp_path / "r", [service([engine])], *flags) as one:
            await until(one, lambda: one.num_eligible() == 1)
            for _ in range(NUM_REQUESTS):
                assert await ask(http, one) == OK
            workers = one.children("worker")
            for worker in workers:
                os.kill(worker, signal.SIGTERM)
            await wait_until_async(lambda: not any(map(is_alive, workers)))
            counted = await asyncio.to_thread(counts, one, "requests")
            assert counted == {'{service="default/chat",status="200"}': NUM_REQUESTS}


async def test_told_to_end_all_answers_end_first(http: httpx.AsyncClient, tmp_path: Path) -> None:
    with FakeEngines() as fakes:
        engine = fakes.add(when_allowed)
        flags = (*TWO_WORKERS, "--drain-grace-seconds", "0")
        with RunningGateway(tmp_path / "r", [service([engine])], *flags) as one:
            await until(one, lambda: one.num_eligible() == 1)
            asked = [asyncio.create_task(ask(http, one)) for _ in range(NUM_REQUESTS)]
            await until(one, lambda: in_flight(one) == NUM_REQUESTS)
            children = one.children("worker") + one.children("decider")
            one.stop()
            await until(one, lambda: one.manage("/readyz").status_code == 503)
            engine.may_go_on.set()
            assert await asyncio.gather(*asked) == [OK] * NUM_REQUESTS
            assert await asyncio.to_thread(one.process.wait, 120) == 0
            assert not any(map(is_alive, children))


async def test_without_its_supervisor_none_is_left(tmp_path: Path) -> None:
    with RunningGateway(tmp_path / "r", [service([])], *TWO_WORKERS) as one:
        children = one.children("worker") + one.children("decider")
        assert len(children) == 3
        one.process.kill()
        await wait_until_async(lambda: not any(map(is_alive, children)))


async def test_those_that_hang_end_with_their_supervisor(tmp_path: Path) -> None:
    with RunningGateway(tmp_path / "r", [service([])], *TWO_WORKERS) as one:
        children = one.children("worker") + one.children("decider")
        for worker in one.children("worker"):
            os.kill(worker, signal.SIGSTOP)
        one.process.kill()
        await wait_until_async(lambda: not any(map(is_alive, children)))


async def test_a_deadline_that_ends_while_the_decider_is_silent_is_no_want_of_engines(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    body = {"model": MODEL, "prompt": "a"}
    deadline = {"x-quire-deadline-ms": "200"}
    with FakeEngines() as fakes:
        documents = [service([fakes.add(answer_ok)])]
        with RunningGateway(tmp_path / "r", documents, *TWO_WORKERS) as one:
            await until(one, lambda: one.num_eligible() == 1)
            (decider,) = one.children("decider")

            async def ask_stopped() -> httpx.Response:
                os.kill(decider, signal.SIGSTOP)
                answer = await http.post(one.url + "/v1/completions", json=body, headers=deadline)
                os.kill(decider, signal.SIGCONT)
                return answer

            # a worker that knows already that it is alone asks nobody, and one that has not read
            # yet what the decider knows of engines has reason to want some
            async with asyncio.timeout(120):
                while (answer := await ask_stopped()).status_code != 429:
                    assert answer.status_code in (200, 503)
                    await until(one, lambda: one.num_eligible() == 1)
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert "within its deadline" in answer.json()["error"]["message"]


async def test_deciders_that_end_give_no_key_its_minute_back(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"k").hexdigest()
    key = {"name": "k", "sha256": digest, "requests_per_minute": 12}
    body = {"model": MODEL, "prompt": "a"}
    loop = asyncio.get_running_loop()
    with FakeEngines() as fakes:
        documents = [service([fakes.add(answer_ok)], api_keys=[key])]
        with RunningGateway(tmp_path / "r", documents, *TWO_WORKERS) as one:
            await until(one, lambda: one.num_eligible() == 1)
            answered, began_at = 0, loop.time()
            for _ in range(3):
                last_at = loop.time()
                while loop.time() < last_at + 8 * PUBLISH_SECONDS:
                    bearer = {"authorization": "Bearer k"}
                    answer = await http.post(one.url + "/v1/completions", json=body, headers=bearer)
                    assert answer.status_code in (200, 429)
                    if answer.is_success:
                        answered, last_at = answered + 1, loop.time()
                (decider,) = one.children("decider")
                os.kill(decider, signal.SIGKILL)
                await wait_until_async(lambda pid=decider: not is_alive(pid))  # type: ignore[misc]
                await until(one, lambda: one.num_eligible() == 1)
            minutes = (loop.time() - began_at) / 60
    assert answered <= 12 + 12 * minutes + 1
