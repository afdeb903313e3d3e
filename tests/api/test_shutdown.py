"""SIGTERM: not ready first, then no new requests, running ones finish, exit 0."""

import asyncio
import signal
from typing import Any

import httpx

from tests.api.events import check_ends_once, parse_events
from tests.api.servers import MODEL, SIMULATED, RunningServer, is_alive, wait_until_async

COMPLETIONS = "/v1/completions"
STEPS_OF_20_MS = (*SIMULATED, "--simulated-step-seconds", "0.02")


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 8000, "stream": True} | changes


async def start_requests(
    running: RunningServer, http: httpx.AsyncClient, *bodies: dict[str, Any]
) -> list[asyncio.Task[httpx.Response]]:
    url = running.url + COMPLETIONS
    tasks = [asyncio.create_task(http.post(url, json=body)) for body in bodies]
    await wait_until_async(lambda: running.state().sequences.running == len(bodies))
    return tasks


async def ask_until_refused(running: RunningServer, http: httpx.AsyncClient) -> httpx.Response:
    while True:
        response = await http.post(running.url + COMPLETIONS, json=completion(max_tokens=1))
        if response.status_code != 200:
            return response


async def wait_for_exit(running: RunningServer) -> int:
    return await asyncio.to_thread(running.process.wait, 30)


async def test_a_drain_lets_running_requests_finish(http: httpx.AsyncClient) -> None:
    with RunningServer(*STEPS_OF_20_MS, "--drain-grace-seconds", "1") as running:
        core_pid = running.core_pid()
        (request,) = await start_requests(running, http, completion(max_tokens=250))
        running.stop()
        await wait_until_async(lambda: not running.is_ready())
        assert running.get("/readyz").json() == {"status": "draining"}
        assert running.get("/healthz").status_code == 200
        assert running.state().is_draining
        in_grace = await http.post(running.url + COMPLETIONS, json=completion(max_tokens=2))
        assert in_grace.status_code == 200

        late = await ask_until_refused(running, http)
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "shutting_down"
        assert "retry-after" in late.headers
        assert not request.done()
        events = parse_events((await request).text)

        assert check_ends_once(events) == "finish"
        assert sum(len(event["choices"][0]["text"]) for event in events[:-1]) == 250
        assert await wait_for_exit(running) == 0
        assert not is_alive(core_pid)


async def test_what_outlives_the_drain_ends_with_an_error_event(http: httpx.AsyncClient) -> None:
    flags = ("--drain-grace-seconds", "0", "--drain-seconds", "0.5")
    with RunningServer(*STEPS_OF_20_MS, *flags) as running:
        stream, whole = await start_requests(running, http, completion(), completion(stream=False))
        running.stop()

        assert check_ends_once(parse_events((await stream).text)) == "error"
        assert (await whole).status_code == 503
        assert await wait_for_exit(running) == 0


async def test_a_second_signal_hurries(http: httpx.AsyncClient) -> None:
    flags = ("--drain-grace-seconds", "600", "--drain-seconds", "600")
    with RunningServer(*STEPS_OF_20_MS, *flags) as running:
        (request,) = await start_requests(running, http, completion())
        running.stop()
        await wait_until_async(lambda: not running.is_ready())
        running.stop()

        assert check_ends_once(parse_events((await request).text)) == "error"
        assert await wait_for_exit(running) == 0


async def test_ctrl_c_has_no_grace() -> None:
    with RunningServer(*STEPS_OF_20_MS, "--drain-grace-seconds", "60") as running:
        running.stop(signal.SIGINT)

        assert await wait_for_exit(running) == 0
