"""Engines that answer garbage, hang, refuse or break off: a client sees none of it before the first
byte, and a proper end after it.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.api.gateways import (
    STREAM_HEAD,
    Answer,
    FakeEngine,
    FakeEngines,
    FakeRequest,
    RunningGateway,
    answer_ok,
    chunk,
    service,
)
from tests.api.servers import SIMULATED, RunningServer, wait_until

EVENT = b'data: {"n": 1}\n\n'


def sends(*pieces: bytes) -> Answer:
    async def answer(request: FakeRequest) -> None:
        for piece in pieces:
            await request.send(piece)
        request.writer.close()

    return answer


async def hang(request: FakeRequest) -> None:
    request.engine.is_silent.set()
    await asyncio.Event().wait()


async def hang_in_mid_stream(request: FakeRequest) -> None:
    await request.send(STREAM_HEAD + chunk(EVENT))
    await hang(request)


async def garbage_in_mid_stream(request: FakeRequest) -> None:
    await request.send(STREAM_HEAD + chunk(EVENT))
    # of what comes at once with garbage, nothing is passed on
    await asyncio.to_thread(request.engine.may_go_on.wait, 60)
    await request.send(b"no chunk\r\n")


def refuses(status: str) -> Answer:
    head = f"HTTP/1.1 {status}\r\nretry-after: 7\r\ncontent-length: 2\r\n\r\n{{}}"
    return sends(head.encode())


BEFORE_THE_FIRST_BYTE: dict[str, Answer] = {
    "garbage": sends(b"\x00\x01 this is no HTTP\r\n\r\n"),
    "endless-head": sends(b"HTTP/1.1 200 OK\r\nx: ", b"a" * (1 << 20)),
    "many-headers": sends(b"HTTP/1.1 200 OK\r\n", b"x: aaaaaaaaaaaa\r\n" * (1 << 14)),
    "closes-at-once": sends(),
    "closes-after-the-head": sends(STREAM_HEAD),
    "hangs": hang,
    "does-not-know-the-gateway": refuses("401 Unauthorized"),
    "is-full": refuses("429 Too Many Requests"),
    "drains": refuses("503 Service Unavailable"),
    "answers-too-early": sends(b"HTTP/1.1 100 Continue\r\n\r\n"),
}
AFTER_IT: dict[str, Answer] = {
    "closes-in-mid-stream": sends(STREAM_HEAD + chunk(EVENT)),
    "closes-in-mid-event": sends(STREAM_HEAD + chunk(EVENT) + chunk(b'data: {"n"')),
    "garbage-in-mid-stream": garbage_in_mid_stream,
    "hangs-in-mid-stream": hang_in_mid_stream,
}
CUT = sends(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"x" * 10)


def completion(name: str, **changes: object) -> dict[str, object]:
    return {"model": name, "prompt": "Once", "max_tokens": 16} | changes


@dataclass
class Setup:
    gateway: RunningGateway
    engine: RunningServer
    fakes: dict[str, FakeEngine] = field(default_factory=dict)

    def ask(self, name: str, **changes: object) -> httpx.Response:
        wait_until(lambda: self.gateway.num_eligible(name) > 0)
        return self.gateway.post("/v1/completions", completion(name, **changes))


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    """One gateway with a service for each kind of failure; some have a real engine besides."""
    answers = BEFORE_THE_FIRST_BYTE | AFTER_IT | {"cut": CUT}
    with FakeEngines() as fakes:
        made = {name: fakes.add(answer) for name, answer in answers.items()}
        with RunningServer(*SIMULATED, "--model-aliases", ",".join(answers)) as engine:
            documents = [
                service(
                    [fake, engine] if name in BEFORE_THE_FIRST_BYTE else [fake],
                    name=name,
                    model_names=[name],
                )
                for name, fake in made.items()
            ]
            path: Path = tmp_path_factory.mktemp("gateway") / "routing.json"
            # engines beat once a second
            flags = ("--silence-seconds", "5", "--stale-seconds", "5")
            with RunningGateway(path, documents, *flags) as gateway:
                yield Setup(gateway, engine, made)


@pytest.mark.parametrize("name", BEFORE_THE_FIRST_BYTE)
def test_what_fails_before_the_first_byte_is_answered_by_another_engine(
    setup: Setup, name: str
) -> None:
    for number in range(100):  # until one prompt's place is the engine that fails
        wait_until(lambda: setup.gateway.num_eligible(name) == 2)
        answer = setup.ask(name, prompt=f"Once {number}")

        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 16
        if setup.fakes[name].requests:
            return
    pytest.fail("the engine that fails was never asked")


@pytest.mark.parametrize("name", AFTER_IT)
def test_a_stream_that_breaks_off_ends_with_an_error_event(setup: Setup, name: str) -> None:
    wait_until(lambda: setup.gateway.num_eligible(name) == 1)
    url, body = setup.gateway.url + "/v1/completions", completion(name, stream=True)
    text = ""
    with httpx.stream("POST", url, json=body, timeout=60) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_text():
            text += piece
            setup.fakes[name].may_go_on.set()

    first, error, done, rest = text.split("\n\n")
    assert first + "\n\n" == EVENT.decode()
    assert "engine_lost" in error
    assert (done, rest) == ("data: [DONE]", "")


def test_a_whole_answer_that_breaks_off_is_cut(setup: Setup) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        setup.ask("cut")


def test_an_engine_that_goes_on_failing_is_left_alone(setup: Setup) -> None:
    fake = setup.fakes["garbage"]
    fake.requests.clear()
    for _ in range(10):
        assert setup.ask("garbage").status_code == 200
    assert len(fake.requests) < 10


def test_with_no_other_engine_the_error_is_a_proper_one(tmp_path: Path) -> None:
    with FakeEngines() as fakes:
        fake = fakes.add(BEFORE_THE_FIRST_BYTE["garbage"])
        with RunningGateway(tmp_path / "r.json", [service([fake])]) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)
            failed = gateway.post("/v1/completions", completion("llama3-8b"))
            soon = {"x-quire-deadline-ms": "200"}  # before it is tried again
            late = gateway.post("/v1/completions", completion("llama3-8b"), headers=soon)
    assert (failed.status_code, failed.json()["error"]["code"]) == (502, "failed")
    assert (late.status_code, late.json()["error"]["code"]) == (503, "no_engine")
    assert int(late.headers["retry-after"]) > 0


def test_who_comes_while_all_engines_are_left_alone_waits_for_one(tmp_path: Path) -> None:
    async def fail_twice(request: FakeRequest) -> None:
        if len(request.engine.requests) > 2:
            await answer_ok(request)
        request.writer.close()

    with FakeEngines() as fakes:
        fake = fakes.add(fail_twice)
        with RunningGateway(tmp_path / "r.json", [service([fake])]) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)
            answer = gateway.post("/v1/completions", completion("llama3-8b"))
    assert answer.status_code == 200, answer.text
    assert len(fake.requests) == 3


def test_an_engine_that_lives_and_never_answers_is_left_in_bounded_time(tmp_path: Path) -> None:
    async def never(request: FakeRequest) -> None:
        await request.reader.read()  # until the gateway gives up

    with FakeEngines() as fakes:
        dead, well = fakes.add(never), fakes.add(answer_ok)
        path, flags = tmp_path / "r.json", ("--hang-seconds", "0.5")
        with RunningGateway(path, [service([dead, well])], *flags) as gateway:
            wait_until(lambda: gateway.num_eligible() == 2)

            def ask(number: int) -> int:
                body = completion("llama3-8b", prompt=f"Once {number}")
                return gateway.post("/v1/completions", body).status_code

            for _ in range(20):  # until so many were sent there that it is left
                with ThreadPoolExecutor(16) as pool:
                    assert list(pool.map(ask, range(16))) == [200] * 16
                if 'reason="timeout"' in gateway.manage("/metrics").text:
                    break
            else:
                pytest.fail("the engine that never answers is not left")
            assert dead.requests


def test_an_only_engine_that_never_answers_gets_each_request_once(tmp_path: Path) -> None:
    async def never(request: FakeRequest) -> None:
        await request.reader.read()  # until the gateway gives up

    with FakeEngines() as fakes:
        dead = fakes.add(never)
        path, flags = tmp_path / "r.json", ("--hang-seconds", "0.5")
        with RunningGateway(path, [service([dead])], *flags) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)

            def ask(number: int) -> httpx.Response:
                body = completion("llama3-8b", prompt=f"Once {number}", stream=number % 2 == 0)
                return gateway.post("/v1/completions", body)

            with ThreadPoolExecutor(2) as pool:
                answers = list(pool.map(ask, range(2)))
            answers.append(ask(2))  # while it is left alone
    assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(502, "failed")}
    assert len(dead.requests) == len(answers)


def test_a_client_that_reads_nothing_holds_up_its_engine_and_is_cut_off(tmp_path: Path) -> None:
    num_sent, is_over = [0], threading.Event()

    async def flood(request: FakeRequest) -> None:
        try:
            await request.send(STREAM_HEAD)
            while True:
                await request.send(chunk(b"data: " + b"x" * 65000 + b"\n\n"))
                num_sent[0] += 65000
        finally:
            is_over.set()

    with FakeEngines() as fakes:
        fake = fakes.add(flood)
        flags = ("--reader-stall-seconds", "1")
        with RunningGateway(tmp_path / "r.json", [service([fake])], *flags) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)
            body = {"model": "llama3-8b", "prompt": "Once", "stream": True}
            with httpx.stream(
                "POST", gateway.url + "/v1/completions", json=body, timeout=60
            ) as answer:
                assert answer.status_code == 200
                assert is_over.wait(60)
    assert num_sent[0] < 64 << 20  # what the systems' buffers on the way take


def test_an_engine_that_is_killed_costs_its_streams_and_nothing_else(tmp_path: Path) -> None:
    flags = (*SIMULATED, "--simulated-step-seconds", "0.01")
    with RunningServer(*flags) as first, RunningServer(*flags) as second:
        documents = [service([first, second])]
        with RunningGateway(tmp_path / "r.json", documents) as gateway:
            wait_until(lambda: gateway.num_eligible() == 2)
            ended = asyncio.run(_kill_under_load(gateway, first))
            after = [
                gateway.post(
                    "/v1/completions", {"model": "llama3-8b", "prompt": "x", "max_tokens": 2}
                ).status_code
                for _ in range(6)
            ]
            second.wait_until_idle()
    assert after == [200] * 6
    assert all(text.endswith("data: [DONE]\n\n") for text in ended)
    num_lost = sum("engine_lost" in text for text in ended)
    assert 0 < num_lost < len(ended)


async def _kill_under_load(gateway: RunningGateway, victim: RunningServer) -> list[str]:
    """Stream twelve answers, and kill an engine when all have begun."""
    begun = 0
    all_have_begun = asyncio.Event()

    async def stream(client: httpx.AsyncClient) -> str:
        nonlocal begun
        body = {"model": "llama3-8b", "prompt": "Once", "max_tokens": 600, "stream": True}
        pieces: list[str] = []
        async with client.stream("POST", gateway.url + "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_text():
                if not pieces:
                    begun += 1
                    if begun == 12:
                        all_have_begun.set()
                pieces.append(piece)
        return "".join(pieces)

    async with httpx.AsyncClient(timeout=60) as client:
        tasks = [asyncio.create_task(stream(client)) for _ in range(12)]
        await all_have_begun.wait()
        victim.kill()
        return await asyncio.gather(*tasks)
