"""A core that dies ends its requests with an error, and is started again."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.events import check_ends_once, parse_events
from tests.api.servers import (
    MODEL,
    SIMULATED,
    RunningServer,
    is_alive,
    wait_until,
    wait_until_async,
)

COMPLETIONS = "/v1/completions"


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 8000} | changes


@pytest.fixture
def fragile() -> Iterator[RunningServer]:
    """Slow steps, and a short wait before the core is started again."""
    flags = ("--simulated-step-seconds", "0.05", "--core-restart-backoff-seconds", "0.2")
    with RunningServer(*SIMULATED, *flags) as running:
        yield running


async def test_a_killed_core_ends_16_requests_with_an_error_and_comes_back(
    fragile: RunningServer, http: httpx.AsyncClient
) -> None:
    url = fragile.url + COMPLETIONS
    requests = [
        asyncio.create_task(http.post(url, json=completion(stream=number % 2 == 0)))
        for number in range(16)
    ]
    await wait_until_async(lambda: fragile.state().sequences.running == 16)
    core_pid = fragile.core_pid()

    os.kill(core_pid, signal.SIGKILL)
    await wait_until_async(lambda: not fragile.is_ready())
    responses = await asyncio.gather(*requests)

    for number, response in enumerate(responses):
        if number % 2 == 0:
            assert check_ends_once(parse_events(response.text)) == "error"
        else:
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "engine_restarting"
            assert "retry-after" in response.headers
    await wait_until_async(fragile.is_ready)
    answer = await http.post(url, json=completion(max_tokens=5))
    assert answer.json()["usage"]["completion_tokens"] == 5
    assert fragile.core_pid() != core_pid
    assert fragile.wait_until_idle().num_core_restarts == 1
    assert 'finished_reason="error",model_name="llama3-8b"} 16.0' in fragile.get("/metrics").text


def test_requests_are_refused_with_503_until_the_core_is_back(fragile: RunningServer) -> None:
    os.kill(fragile.core_pid(), signal.SIGKILL)
    wait_until(lambda: not fragile.is_ready())
    refused = fragile.post(COMPLETIONS, completion())

    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "not_ready"
    assert "retry-after" in refused.headers
    assert fragile.get("/readyz").json() == {"status": "restarting"}
    assert fragile.get("/healthz").status_code == 200
    wait_until(fragile.is_ready)


def test_a_killed_server_leaves_no_core_behind(fragile: RunningServer) -> None:
    core_pid = fragile.core_pid()
    fragile.kill()

    wait_until(lambda: not is_alive(core_pid))


def test_a_core_that_hangs_is_killed_and_another_one_started() -> None:
    flags = ("--core-silence-seconds", "3", "--request-timeout-seconds", "8")
    with RunningServer(*SIMULATED, *flags) as server:
        stuck = server.core_pid()
        os.kill(stuck, signal.SIGSTOP)
        wait_until(lambda: not server.is_ready())
        wait_until(lambda: not is_alive(stuck))
        wait_until(server.is_ready)

        assert server.post(COMPLETIONS, completion(max_tokens=5)).status_code == 200
        assert server.state().num_core_restarts == 1
