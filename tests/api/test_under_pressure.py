"""Far more work than a cache of 64 blocks takes: whatever happens, the accounts are right."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest

from tests.api.scraping import check_gauges_are_zero, decisions, scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until, wait_until_async

COMPLETIONS = "/v1/completions"
TINY = (*SIMULATED, "--max-model-len", "1024", "--max-num-blocks", "64")


@pytest.fixture(scope="module")
def tiny() -> Iterator[RunningServer]:
    """64 blocks, steps of 10 ms, the first token due within 3 seconds."""
    flags = ("--simulated-step-seconds", "0.01", "--slo-time-to-first-token", "3")
    with RunningServer(*TINY, *flags) as running:
        yield running


class Retries:
    """Counts answers by status, those to an SDK's repeated attempts apart."""

    def __init__(self) -> None:
        self.first: Counter[int] = Counter()
        self.repeated: Counter[int] = Counter()
        self.refusals: list[dict[str, str]] = []
        """Headers of every 429."""

    async def note(self, response: Any) -> None:
        """Count one answer."""
        is_repeated = int(response.request.headers["x-stainless-retry-count"]) > 0
        (self.repeated if is_repeated else self.first)[response.status_code] += 1
        if response.status_code == 429:
            self.refusals.append(dict(response.headers))


async def ask_as_sdks_do(server: RunningServer, retries: Retries, num_clients: int) -> Counter[str]:
    """As many clients as wanted, each with the SDK's default retries; how each ended."""
    chance = random.Random(4)

    async def ask(client: openai.AsyncOpenAI, prompt: str, num_tokens: int) -> str:
        try:
            answer = await client.completions.create(
                model=MODEL, prompt=prompt, max_tokens=num_tokens
            )
        except openai.RateLimitError:
            return "refused"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == num_tokens
        return "answered"

    hooks = {"response": [retries.note]}
    async with openai.DefaultAsyncHttpxClient(event_hooks=hooks) as http:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http)
        sizes = [(chance.randint(16, 240), chance.randint(4, 32)) for _ in range(num_clients)]
        asking = [
            ask(client, f"{number:05}" + "x" * num_prompt, num_tokens)
            for number, (num_prompt, num_tokens) in enumerate(sizes)
        ]
        return Counter(await asyncio.gather(*asking))


async def test_two_hundred_sdk_clients_are_answered_or_truthfully_refused(
    tiny: RunningServer,
) -> None:
    retries = Retries()
    ends = await ask_as_sdks_do(tiny, retries, 200)

    share = retries.repeated[200] / max(sum(retries.repeated.values()), 1)
    print(f"{dict(ends)}, first {dict(retries.first)}, repeated {dict(retries.repeated)}")
    waits = sorted(int(refusal["retry-after-ms"]) for refusal in retries.refusals)
    print(f"told to wait {waits[0]} to {waits[-1]} ms, median {waits[len(waits) // 2]} ms")
    print(f"share of repeated attempts that succeed: {share:.1%}")
    assert ends["answered"] + ends["refused"] == 200
    assert set(retries.first) | set(retries.repeated) <= {200, 429}
    assert retries.refusals, "nothing was refused: this is no pressure"
    for refusal in retries.refusals:
        assert 1 <= int(refusal["retry-after"]) <= 60
        assert 1000 <= int(refusal["retry-after-ms"]) <= 60_000
        assert "held=" in refusal["x-quire-state"]
    assert share >= 0.95
    state = tiny.wait_until_idle()
    assert state.blocks.reserved == state.blocks.queued == 0


async def test_an_abort_storm_leaves_nothing_behind() -> None:
    """500 requests, each cancelled at a moment of its own: queued, in prefill, in decode, last."""
    chance = random.Random(9)
    with RunningServer(*TINY, "--simulated-step-seconds", "0.002") as server:
        url = server.url + COMPLETIONS

        async def ask_and_leave(http: httpx.AsyncClient, number: int) -> str:
            prompt, num_tokens = "x" * chance.randint(1, 600), chance.randint(1, 60)
            body = completion(
                prompt=f"{number}{prompt}", max_tokens=num_tokens, stream=number % 3 > 0
            )
            how = number % 5
            if how == 0:  # with the first bytes, wherever it is by then
                async with http.stream("POST", url, json=body):
                    return "left at the head"
            if how == 1:  # in the middle, or on the very last event
                async with http.stream("POST", url, json=body | {"stream": True}) as response:
                    num_events = chance.randint(1, num_tokens + 1)
                    async for line in response.aiter_lines():
                        num_events -= line.startswith("data: ")
                        if num_events == 0:
                            return "left in the middle"
            delay = chance.uniform(0, 2) if how < 4 else 0.0  # at once: mostly while it is queued
            try:
                async with asyncio.timeout(delay):
                    await http.post(url, json=body)
            except TimeoutError:
                return "cancelled"
            return "answered"

        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http:
            storm = [ask_and_leave(http, number) for number in range(500)]
            ends = Counter(await asyncio.gather(*storm))
        print(dict(ends))
        assert ends["cancelled"] > 100
        state = server.wait_until_idle()
        wait_until(lambda: server.state().num_audits > 0)

        assert server.state().num_core_restarts == 0, "the core's audit found a wrong account"
        assert state.blocks.reserved == state.blocks.queued == state.num_overshoot_blocks == 0
        check_gauges_are_zero(server)
        answer = server.post(COMPLETIONS, completion(max_tokens=3))
        assert answer.json()["usage"]["completion_tokens"] == 3


async def test_ten_thousand_requests_at_once_are_bounded_and_refused() -> None:
    flags = ("--simulated-step-seconds", "0.01", "--max-waiting-requests", "20")
    with RunningServer(*TINY, *flags) as server:
        parts = await asyncio.gather(*(send_on_one_connection(server, 20) for _ in range(500)))
        server.wait_until_idle()
        counted = scrape(server)
    statuses = sum((part.statuses for part in parts), Counter())
    most_waiting = max(part.most_waiting for part in parts)
    print(dict(statuses), f"at most {most_waiting} waiting")

    assert set(statuses) == {200, 429}
    assert sum(statuses.values()) == 10_000
    assert statuses[200] >= 20
    assert most_waiting <= 20 + 64  # those that were preempted wait too: they held a block each
    assert counted[decisions("accepted")] == statuses[200]
    assert counted[decisions("queue_full")] == statuses[429]


@dataclass
class Answers:
    """What one connection saw."""

    statuses: Counter[int] = field(default_factory=Counter)
    most_waiting: int = 0


async def send_on_one_connection(server: RunningServer, num_requests: int) -> Answers:
    """One request after the other, without a client's costs: ten thousand of those take minutes."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps(completion(prompt="x" * 200, max_tokens=60)).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    answers = Answers()
    for _ in range(num_requests):
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        answer = await reader.readexactly(int(headers["content-length"]))
        status = int(lines[0].split()[1])
        answers.statuses[status] += 1
        waiting = headers["x-quire-state"].split("waiting=")[1].split(";")[0]
        answers.most_waiting = max(answers.most_waiting, int(waiting))
        if status == 429:
            assert int(headers["retry-after"]) >= 1
            assert json.loads(answer)["error"]["type"] == "RateLimitError"
    writer.close()
    return answers


async def test_interactive_requests_pass_a_flood_of_background_ones_that_still_progress() -> None:
    with RunningServer(*TINY, "--simulated-step-seconds", "0.01", "--max-num-seqs", "8") as server:
        order: list[str] = []

        async def ask(http: httpx.AsyncClient, kind: str, number: int) -> None:
            body = completion(prompt=f"{kind}{number}" + "x" * 100, max_tokens=20)
            headers = {"x-quire-priority": kind}
            response = await http.post(server.url + COMPLETIONS, json=body, headers=headers)
            assert response.status_code == 200
            order.append(kind)

        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=120, limits=limits) as http:
            flood = [asyncio.create_task(ask(http, "background", n)) for n in range(200)]
            await wait_until_async(lambda: waiting(server, "background") > 100)
            await asyncio.gather(*(ask(http, "interactive", n) for n in range(20)))
            num_passed = sum(not task.done() for task in flood)
            await asyncio.gather(*flood)
        server.wait_until_idle()
        counted = scrape(server)

    print(f"20 interactive requests passed {num_passed} background ones that had come before them")
    assert num_passed > 20
    assert Counter(order) == {"background": 200, "interactive": 20}
    assert counted[decisions("accepted")] == 220


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 8} | changes


def waiting(server: RunningServer, kind: str) -> int:
    return server.state().sequences.by_priority[kind].waiting
