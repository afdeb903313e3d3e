"""A client that leaves takes its own request with it, and no other."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.events import check_ends_once, parse_events
from tests.api.servers import MODEL, RunningServer, wait_until

COMPLETIONS = "/v1/completions"


def counts(server: RunningServer) -> tuple[int, int]:
    """Sequences running and waiting."""
    sequences = server.state().sequences
    return sequences.running, sequences.waiting


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 8000} | changes


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
async def test_a_closed_connection_frees_its_blocks_at_once(
    slow_server: RunningServer, is_stream: bool
) -> None:
    async with httpx.AsyncClient(timeout=60) as leaving:
        url, body = slow_server.url + COMPLETIONS, completion(stream=is_stream)
        request = asyncio.create_task(leaving.post(url, json=body))
        await asyncio.to_thread(wait_until, lambda: slow_server.state().sequences.running == 1)
        request.cancel()
    # of its own the request would hold them for minutes, far past what is waited here
    await asyncio.to_thread(slow_server.wait_until_idle)


async def test_others_go_on_when_running_and_queued_clients_leave(
    slow_server: RunningServer, http: httpx.AsyncClient
) -> None:
    url = slow_server.url + COMPLETIONS
    staying = asyncio.create_task(http.post(url, json=completion(max_tokens=60, stream=True)))
    async with httpx.AsyncClient(timeout=60) as leaving:
        tasks = [asyncio.create_task(leaving.post(url, json=completion())) for _ in range(6)]
        await asyncio.to_thread(wait_until, lambda: counts(slow_server) == (4, 3))
        for task in tasks:
            task.cancel()
    response = await staying
    events = parse_events(response.text)

    assert check_ends_once(events) == "finish"
    assert sum(len(event["choices"][0]["text"]) for event in events[:-1]) == 60
    slow_server.wait_until_idle()


async def test_a_reader_that_stops_reading_holds_up_nobody(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    url = server.url + COMPLETIONS
    async with http.stream("POST", url, json=completion(stream=True)) as stalled:
        assert stalled.status_code == 200  # and nothing more is read of it
        answer = await http.post(url, json=completion(max_tokens=100))
    assert answer.json()["usage"]["completion_tokens"] == 100
    server.wait_until_idle()
