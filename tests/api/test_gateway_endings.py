"""Whoever waits is told, whatever ends: a service, an engine, or the gateway itself."""

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.gateways import (
    STREAM_HEAD,
    FakeEngine,
    FakeEngines,
    FakeRequest,
    RunningGateway,
    chunk,
    service,
)
from tests.api.servers import wait_until, wait_until_async
from tests.api.test_gateway import COMPLETIONS, begin_stream, completion, num_waiting

EVENT = b'data: {"choices": []}\n\n'


@pytest.fixture
def fakes() -> Iterator[FakeEngines]:
    with FakeEngines() as running:
        yield running


async def begin_and_wait(request: FakeRequest) -> None:
    """Begin a stream, and end it when told; nothing comes of a whole answer before that."""
    is_stream = b'"stream"' in request.body
    if is_stream:
        await request.send(STREAM_HEAD + chunk(EVENT))
    await wait_until_async(request.engine.may_go_on.is_set, seconds=600)  # clients give up first
    if is_stream:
        await request.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def begin_cold_stream(stack: contextlib.ExitStack, gateway: RunningGateway) -> Iterator[str]:
    """Begin a stream that no engine is there for: the first piece is a comment."""
    return begin_stream(stack, gateway, 8)


def is_alone(gateway: RunningGateway, name: str, engine: FakeEngine) -> bool:
    """Whether this engine is the only one of a service, and takes requests."""
    found = [(one["address"], one["is_eligible"]) for one in gateway.fleet(name)["engines"]]
    return found == [(engine.url.removeprefix("http://"), True)]


def test_who_waits_for_a_service_that_is_removed_is_told(tmp_path: Path) -> None:
    with (
        RunningGateway(tmp_path / "r.json", [service([])]) as gateway,
        ThreadPoolExecutor(2) as pool,
        contextlib.ExitStack() as stack,
    ):
        rest = begin_cold_stream(stack, gateway)
        headers = {"x-quire-deadline-ms": "600000"}
        whole = pool.submit(gateway.post, COMPLETIONS, completion(), headers=headers)
        wait_until(lambda: num_waiting(gateway) == 2)
        gateway.write([])
        answer = whole.result(60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        text = "".join(rest)
    assert "model_not_found" in text
    assert text.endswith("data: [DONE]\n\n")


def test_answers_of_an_engine_that_has_left_end_when_it_hangs(
    fakes: FakeEngines, tmp_path: Path
) -> None:
    hanging, living = fakes.add(begin_and_wait), fakes.add(begin_and_wait)
    path, flags = tmp_path / "r.json", ("--silence-seconds", "4")
    with (
        RunningGateway(path, [service([hanging])], *flags) as gateway,
        contextlib.ExitStack() as stack,
    ):
        wait_until(lambda: gateway.num_eligible() == 1)
        lost = begin_stream(stack, gateway, 8)
        gateway.write([service([living])])
        wait_until(lambda: is_alone(gateway, "chat", living))
        kept = begin_stream(stack, gateway, 8)
        wait_until(lambda: len(living.requests) == 1)
        gateway.write([service([])])
        wait_until(lambda: not gateway.fleet()["engines"])
        hanging.is_silent.set()
        assert "engine_lost" in "".join(lost)
        living.may_go_on.set()
        text = "".join(kept)
    assert text.endswith("data: [DONE]\n\n")
    assert "error" not in text


def test_a_second_signal_tells_all_that_wait(fakes: FakeEngines, tmp_path: Path) -> None:
    left, present = fakes.add(begin_and_wait), fakes.add(begin_and_wait)

    def documents(*engines: Any) -> list[dict[str, Any]]:
        warm = service(engines, name="warm", model_names=["warm"])
        return [service([]), warm]

    with (
        RunningGateway(tmp_path / "r.json", documents(left)) as gateway,
        ThreadPoolExecutor(2) as pool,
        contextlib.ExitStack() as stack,
    ):

        def ask(model: str) -> httpx.Response:
            return gateway.post(COMPLETIONS, completion(model=model))

        wait_until(lambda: gateway.num_eligible("warm") == 1)
        client = stack.enter_context(httpx.Client(timeout=60))
        body = completion(model="warm", stream=True)
        url = gateway.url + COMPLETIONS
        answer = stack.enter_context(client.stream("POST", url, json=body))
        rest = answer.iter_text()
        next(rest)
        gateway.write(documents(present))
        wait_until(lambda: is_alone(gateway, "warm", present))
        begun = pool.submit(ask, "warm")
        wait_until(lambda: len(present.requests) == 1)
        cold = begin_cold_stream(stack, gateway)
        waiting = pool.submit(gateway.post, COMPLETIONS, completion())
        wait_until(lambda: num_waiting(gateway) == 2)

        gateway.stop(signal.SIGTERM)
        wait_until(lambda: gateway.manage("/readyz").status_code == 503)
        gateway.stop(signal.SIGTERM)
        assert "shutting_down" in "".join(rest)
        assert "shutting_down" in "".join(cold)
        for one in (begun.result(60), waiting.result(60)):
            assert (one.status_code, one.json()["error"]["code"]) == (503, "shutting_down")
        assert gateway.process.wait(60) == 0
