"""`GET /state` in full, and the same pushed as it changes."""

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx
import msgspec

from quire_engine.protocol.state import EngineState
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until, wait_until_async

COMPLETIONS = "/v1/completions"


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 2} | changes


async def follow(
    server: RunningServer, http: httpx.AsyncClient
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """(name, data) of each event."""
    name = ""
    async with http.stream("GET", server.url + "/state/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, msgspec.json.decode(line.removeprefix("data: "))


async def test_the_stream_begins_with_the_state_and_beats_while_nothing_changes(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    server.wait_until_idle()
    events = []
    async with aclosing(follow(server, http)) as stream:
        async for name, data in stream:
            events.append((name, data))
            if [n for n, _ in events[-2:]] == ["heartbeat", "heartbeat"]:
                break

    assert events[0][0] == "state"
    states = [data for name, data in events if name == "state"]
    assert msgspec.convert(states[-1], EngineState).blocks.held == 0
    assert events[-1][1]["sequence"] == states[-1]["sequence"]
    assert 0 <= events[-1][1]["age_seconds"] < 30


async def test_changes_are_pushed_in_order_and_coalesced(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    server.wait_until_idle()
    states: list[EngineState] = []
    started_at = time.monotonic()
    async with aclosing(follow(server, http)) as stream:
        body = completion(max_tokens=500)
        request = asyncio.create_task(http.post(server.url + COMPLETIONS, json=body))
        async for name, data in stream:
            if name == "state":
                states.append(msgspec.convert(data, EngineState))
            if request.done() and states[-1].blocks.held == 0 and len(states) > 2:
                break
        await request
    num_intervals = (time.monotonic() - started_at) / 0.25

    assert max(state.sequences.running for state in states) == 1
    assert [s.sequence for s in states] == sorted({s.sequence for s in states})
    assert len(states) <= num_intervals + 1  # however fast the engine changes: 4 a second
    assert states[-1].sequence - states[0].sequence >= len(states) - 1


async def test_a_stream_tells_drains_and_ends_with_the_server(http: httpx.AsyncClient) -> None:
    with RunningServer(*SIMULATED, "--drain-grace-seconds", "0") as server:
        seen: list[bool] = []
        async for name, data in follow(server, http):
            if name != "state":
                continue
            if not seen:
                await http.post(server.url + "/drain")
            seen.append(data["is_draining"])
            if data["is_draining"] and len(seen) == 2:
                server.stop()  # and the stream ends by itself
        assert await asyncio.to_thread(server.process.wait, 30) == 0

    assert seen[:2] == [False, True]


async def test_a_reader_that_never_reads_holds_up_nobody(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((host, int(port)))
        stalled.sendall(b"GET /state/stream HTTP/1.1\r\nhost: x\r\n\r\n")
        answers = await asyncio.gather(
            *(
                http.post(server.url + COMPLETIONS, json=completion(max_tokens=300))
                for _ in range(20)
            )
        )
    assert [answer.status_code for answer in answers] == [200] * 20
    server.wait_until_idle()


def test_the_state_is_complete(server: RunningServer) -> None:
    server.post(COMPLETIONS, completion(max_tokens=30))
    server.wait_until_idle()
    wait_until(lambda: bool((lengths := server.state().output_lengths) and lengths.buckets))
    state = server.state()

    assert state.config_hash == server.state().config_hash
    assert len(state.config_hash) == 16
    assert state.pressure is not None
    assert state.pressure.value == 0
    assert state.pressure.binding in ("blocks", "seats", "first_token", "step")
    assert state.thresholds is not None
    assert state.thresholds.admission == 0.95
    assert state.step_time is not None
    assert state.step_time.fit_error >= 0
    assert state.step_time.limits.num_decodes > 0
    assert state.z is not None
    assert set(state.sequences.by_priority) == {"interactive", "background"}
    assert state.num_overshoot_blocks == 0
    assert state.num_prompt_tokens_ahead == 0
    assert state.max_step_tokens


async def test_prefix_chunks_are_told_when_they_come_and_when_they_go(
    http: httpx.AsyncClient,
) -> None:
    flags = ("--max-model-len", "256", "--max-num-blocks", "16", "--simulated-step-seconds", "0")
    with RunningServer(*SIMULATED, *flags) as server:

        def log() -> list[tuple[str, str]]:
            return list(server.state().prefix_chunks.events)

        chunks = ["aaaaaaaa", "bbbbbbbb", "cccccccc"]
        headers = {"x-quire-prefix": ",".join(chunks)}
        body = completion(prompt="p" * 96)
        await http.post(server.url + COMPLETIONS, json=body, headers=headers)
        await wait_until_async(lambda: len(log()) == 3)
        assert log() == [("inserted", chunk) for chunk in chunks]
        assert server.state().prefix_chunks.next_number == 3

        await http.post(server.url + COMPLETIONS, json=completion(prompt="q" * 200))
        await wait_until_async(lambda: ("evicted", "cccccccc") in log())
        assert ("evicted", "aaaaaaaa") not in log()  # a chain's tail is evicted before its head


async def test_an_engine_that_keeps_no_prefixes_says_so(http: httpx.AsyncClient) -> None:
    with RunningServer(*SIMULATED, "--no-enable-prefix-caching") as server:
        headers = {"x-quire-prefix": "aaaaaaaa,bbbbbbbb"}
        answer = await http.post(
            server.url + COMPLETIONS, json=completion(prompt="p" * 96), headers=headers
        )
        assert answer.status_code == 200
        state = server.state()
        assert not state.has_prefix_cache
        assert state.prefix_chunks.events == []
