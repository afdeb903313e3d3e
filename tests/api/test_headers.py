"""What `x-quire-*` headers change, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from quire_engine.protocol import metric_names as names
from quire_engine.protocol.state import EngineState
from tests.api.scraping import check_gauges_are_zero, decisions, scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until, wait_until_async

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningServer]:
    """One seat, 64 blocks, steps of 20 ms."""
    flags = ("--max-model-len", "1024", "--max-num-blocks", "64", "--max-num-seqs", "1")
    with RunningServer(*SIMULATED, *flags, "--simulated-step-seconds", "0.02") as running:
        yield running


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 2} | changes


def ask(server: RunningServer, body: dict[str, Any] | None = None, **headers: str) -> Any:
    named = {f"x-quire-{name.replace('_', '-')}": value for name, value in headers.items()}
    return server.post(COMPLETIONS, body or completion(), headers=named)


@asynccontextmanager
async def busy(server: RunningServer, http: httpx.AsyncClient) -> AsyncIterator[None]:
    """The engine's only seat is taken for as long as the block runs."""
    url, body = server.url + COMPLETIONS, completion(max_tokens=900, stream=True)
    async with http.stream("POST", url, json=body):
        await wait_until_async(lambda: server.state().sequences.running == 1)
        yield
    await asyncio.to_thread(server.wait_until_idle)


def of_class(state: EngineState, kind: str) -> tuple[int, int]:
    counts = state.sequences.by_priority[kind]
    return counts.running, counts.waiting


@pytest.mark.parametrize(
    ("header", "number", "kind"),
    [
        (None, None, "interactive"),
        (None, 0, "interactive"),
        (None, -1, "interactive"),
        (None, 1, "background"),
        ("interactive", 7, "interactive"),
        ("background", -7, "background"),
    ],
)
async def test_the_class_is_the_headers_or_else_the_bodys(
    narrow: RunningServer,
    http: httpx.AsyncClient,
    header: str | None,
    number: int | None,
    kind: str,
) -> None:
    headers = {"x-quire-priority": header} if header else {}
    body = completion(max_tokens=900, stream=True, priority=number)
    async with http.stream("POST", narrow.url + COMPLETIONS, json=body, headers=headers):
        await wait_until_async(lambda: of_class(narrow.state(), kind) == (1, 0))
        running = scrape(narrow)
    assert running[f"{names.RUNNING}{{priority={kind}}}"] == 1
    narrow.wait_until_idle()
    check_gauges_are_zero(narrow)


async def test_an_interactive_request_takes_a_background_ones_seat_and_that_is_counted(
    narrow: RunningServer, http: httpx.AsyncClient
) -> None:
    before = scrape(narrow)
    headers = {"x-quire-priority": "background"}
    body = completion(max_tokens=60)
    displaced = asyncio.create_task(http.post(narrow.url + COMPLETIONS, json=body, headers=headers))
    await wait_until_async(lambda: of_class(narrow.state(), "background") == (1, 0))
    first = await http.post(narrow.url + COMPLETIONS, json=completion())
    assert first.status_code == 200
    assert not displaced.done()
    assert (await displaced).json()["usage"]["completion_tokens"] == 60
    narrow.wait_until_idle()
    counted = scrape(narrow)

    for name in (f"{names.PREEMPTIONS}{{cause=priority}}", names.NUM_PREEMPTIONS):
        assert counted[name] == before[name] + 1
    assert narrow.state().num_preemptions == counted[names.NUM_PREEMPTIONS]
    assert narrow.state().num_recomputed_tokens == counted[names.RECOMPUTED_TOKENS]
    assert counted[f"{names.QUEUE_TIME}_count"] == before[f"{names.QUEUE_TIME}_count"] + 2
    assert counted[decisions("accepted")] == before[decisions("accepted")] + 2
    check_gauges_are_zero(narrow)


async def test_now_means_now_or_a_refusal_at_once(
    narrow: RunningServer, http: httpx.AsyncClient
) -> None:
    assert ask(narrow, admit="now").status_code == 200
    before = scrape(narrow)
    async with busy(narrow, http):
        refused = await asyncio.to_thread(ask, narrow, admit="now")
        told = await asyncio.to_thread(ask, narrow, admit="now", gateway="g;1")
        hopeless = await asyncio.to_thread(ask, narrow, admit="now", cost_hint="blocks=64")

    for response in (refused, hopeless):
        assert response.status_code == 429
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert 1000 <= int(response.headers["retry-after-ms"]) <= 60_000
    counted = scrape(narrow)
    for reason, number in (("no_room", 2), ("cost_hint", 1)):
        assert counted[decisions(reason)] == before[decisions(reason)] + number
    # a gateway, which only guesses how long a prompt is, is told
    assert told.headers["x-quire-usage"] == "prompt=4;completion=0;cached=0"
    assert "x-quire-usage" not in refused.headers


async def test_a_deadline_that_cannot_be_met_is_refused_while_it_waits_or_before(
    narrow: RunningServer, http: httpx.AsyncClient
) -> None:
    before = scrape(narrow)
    async with busy(narrow, http):
        late = await asyncio.to_thread(ask, narrow, deadline_ms="50")

    assert late.status_code == 429
    assert "deadline" in late.json()["error"]["message"]
    assert scrape(narrow)[decisions("deadline")] == before[decisions("deadline")] + 1


def test_a_hint_that_never_fits_is_told_so_before_the_prompt_is_looked_at(
    narrow: RunningServer,
) -> None:
    response = ask(narrow, completion(prompt="x" * 5000), cost_hint='{"blocks": 65}')

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "never_fits"
    assert response.json()["error"]["param"] == "x-quire-cost-hint"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-quire-priority", "urgent"),
        ("x-quire-deadline-ms", "-1"),
        ("x-quire-admit", "maybe"),
        ("x-quire-cost-hint", "blocks=-3"),
        ("x-quire-gateway", "g;-1"),
        ("x-quire-prefix", "zz"),
        ("x-quire-salt", "a b"),
    ],
)
def test_malformed_headers_are_named(
    server: RunningServer, path: str, header: str, value: str
) -> None:
    response = server.post(path, completion(), headers={header: value})

    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == header
    assert error["code"] == "invalid_header"
    assert "it takes" in error["message"]


@pytest.mark.parametrize("priority", ["high", 1.5, 2**60])
def test_a_malformed_priority_in_the_body_is_named(server: RunningServer, priority: Any) -> None:
    response = server.post(COMPLETIONS, completion(priority=priority))

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "priority"


def test_salts_keep_tenants_prefixes_apart(server: RunningServer) -> None:
    def cached(salt: str) -> int:
        answer = ask(server, completion(prompt="salted " * 20), salt=salt).json()
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("a") == 0
    assert cached("a") > 0
    assert cached("b") == 0


def test_gateways_counters_are_in_the_state_and_only_64_of_them(narrow: RunningServer) -> None:
    with httpx.Client(timeout=60) as client:
        for counter in [*(f"gw-{number};{number}" for number in range(70)), "gw-69;7"]:
            headers = {"x-quire-gateway": counter}
            body = completion(max_tokens=1)
            assert client.post(narrow.url + COMPLETIONS, json=body, headers=headers).is_success

    wait_until(lambda: "gw-69" in narrow.state().gateways)
    gateways = narrow.wait_until_idle().gateways
    assert gateways == {f"gw-{number}": number for number in range(6, 70)}


def test_every_answer_says_how_the_engine_is(server: RunningServer) -> None:
    answers = [
        ask(server),
        ask(server, completion(stream=True)),
        ask(server, completion(max_tokens=0)),
        ask(server, completion(model="other")),
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 400, 404]
    for answer in answers:
        pairs = dict(pair.split("=") for pair in answer.headers["x-quire-state"].split(";"))
        assert set(pairs) == {
            *("held", "reserved", "total", "running", "waiting", "pressure", "seq")
        }
        assert int(pairs["total"]) == server.state().blocks.total
    assert "x-quire-state" not in server.get("/metrics").headers


async def test_room_is_held_for_a_request_that_came_to_wait(http: httpx.AsyncClient) -> None:
    flags = ("--max-model-len", "1024", "--max-num-blocks", "64", "--max-num-seqs", "8")
    with RunningServer(*SIMULATED, *flags, "--simulated-step-seconds", "0.02") as server:
        url = server.url + COMPLETIONS
        ends: list[str] = []

        async def send(name: str, num_prompt: int, num_tokens: int, **headers: str) -> None:
            body = completion(prompt=name + "x" * num_prompt, max_tokens=num_tokens)
            response = await http.post(url, json=body, headers=headers)
            assert response.status_code == 200
            ends.append(name)

        def waiting() -> int:
            return server.state().sequences.waiting

        running = asyncio.create_task(send("running", 500, 100))
        await wait_until_async(lambda: server.state().sequences.running == 1)
        big = asyncio.create_task(send("big", 800, 2, **{"x-quire-admit": "wait"}))
        await wait_until_async(lambda: waiting() == 1)
        small = [asyncio.create_task(send(f"small {n}", 10, 2)) for n in range(3)]
        await wait_until_async(lambda: waiting() == 4)
        assert server.state().sequences.running == 1  # there are blocks and seats, but held
        await asyncio.gather(running, big, *small)

    assert ends[0] == "running"
