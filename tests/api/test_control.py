"""Draining and taking back, and limits that change while requests run."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from quire_engine.protocol.messages import Thresholds
from tests.api.events import check_ends_once, parse_events
from tests.api.scraping import decisions, scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until, wait_until_async

COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def steered() -> Iterator[RunningServer]:
    """Steps of 20 ms; every test leaves it in service and with its limits."""
    flags = ("--simulated-step-seconds", "0.02", "--core-restart-backoff-seconds", "0.2")
    with RunningServer(*SIMULATED, *flags) as running:
        yield running


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 2} | changes


def delete_drain(server: RunningServer) -> dict[str, Any]:
    response = httpx.delete(server.url + "/drain", timeout=10)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    return answer


async def start(server: RunningServer, http: httpx.AsyncClient, **changes: Any) -> Any:
    body = completion(stream=True, **changes)
    task = asyncio.create_task(http.post(server.url + COMPLETIONS, json=body))
    await wait_until_async(lambda: server.state().sequences.running == 1)
    return task


async def test_a_drain_refuses_new_requests_lets_running_ones_finish_and_can_be_undone(
    steered: RunningServer, http: httpx.AsyncClient
) -> None:
    refused_before = scrape(steered)[decisions("draining")]
    running = await start(steered, http, max_tokens=100)
    answer = await http.post(steered.url + "/drain")
    assert answer.json() == {"is_draining": True, "num_in_flight": 1}
    assert steered.state().is_draining
    assert steered.get("/readyz").json() == {"status": "draining"}
    assert steered.get("/healthz").status_code == 200

    refused = await http.post(steered.url + COMPLETIONS, json=completion())
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "draining"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert int(refused.headers["retry-after-ms"]) >= 1000
    assert "x-quire-state" in refused.headers
    assert check_ends_once(parse_events((await running).text)) == "finish"

    assert delete_drain(steered) == {"is_draining": False, "num_in_flight": 0}
    assert steered.is_ready()
    assert steered.post(COMPLETIONS, completion()).status_code == 200
    assert scrape(steered)[decisions("draining")] == refused_before + 1


async def test_what_outlives_the_drains_time_ends_with_an_error(
    steered: RunningServer, http: httpx.AsyncClient
) -> None:
    running = await start(steered, http, max_tokens=8000)
    await http.post(steered.url + "/drain", json={"seconds": 0.1})

    assert check_ends_once(parse_events((await running).text)) == "error"
    wait_until(lambda: steered.state().blocks.held == 0)
    delete_drain(steered)
    assert steered.is_ready()


@contextmanager
def half_sent(server: RunningServer) -> Iterator[tuple[socket.socket, bytes]]:
    """A request whose body has come by half, and the rest of it."""
    payload = json.dumps(completion()).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    before = num_in_flight(server)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + payload[:9])
        wait_until(lambda: num_in_flight(server) == before + 1)
        yield connection, payload[9:]


def num_in_flight(server: RunningServer) -> int:
    """As ending a drain says, which there is none of."""
    return int(delete_drain(server)["num_in_flight"])


def test_a_drain_waits_for_a_body_and_its_time_ends_the_wait(steered: RunningServer) -> None:
    with half_sent(steered) as (connection, _):
        status = steered.post("/drain", {"seconds": 0.05}).json()
        answer = b""
        while not answer.endswith(b"}}"):
            answer += connection.recv(1 << 16)
    delete_drain(steered)

    assert status == {"is_draining": True, "num_in_flight": 1}
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"draining"' in answer
    wait_until(lambda: num_in_flight(steered) == 0)
    assert steered.post(COMPLETIONS, completion()).status_code == 200


def test_a_body_that_came_by_half_before_the_signal_is_answered() -> None:
    flags = ("--drain-grace-seconds", "0")
    with RunningServer(*SIMULATED, *flags) as server, half_sent(server) as (connection, rest):
        server.stop()
        wait_until(lambda: server.post(COMPLETIONS, completion()).status_code == 503)
        connection.sendall(rest)
        answer = connection.recv(1 << 16)

        assert answer.startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    "body", [b'{"seconds": -1}', b'{"seconds": "soon"}', b'{"second": 3}', b"[]", b"{"]
)
def test_a_malformed_drain_is_refused_and_changes_nothing(
    steered: RunningServer, body: bytes
) -> None:
    assert httpx.post(steered.url + "/drain", content=body, timeout=60).status_code == 400
    assert steered.is_ready()


async def test_a_drain_by_signal_cannot_be_undone(http: httpx.AsyncClient) -> None:
    flags = ("--simulated-step-seconds", "0.02", "--drain-grace-seconds", "60")
    with RunningServer(*SIMULATED, *flags) as server:
        server.stop()
        await wait_until_async(lambda: not server.is_ready())
        response = await http.delete(server.url + "/drain")
        server.stop()

    assert response.status_code == 409


def limits(server: RunningServer) -> dict[str, Any]:
    answer: dict[str, Any] = server.get("/thresholds").json()
    return answer


def put(server: RunningServer, body: Any) -> httpx.Response:
    return httpx.put(server.url + "/thresholds", json=body, timeout=20)


async def test_limits_change_while_a_request_runs_and_it_is_not_touched(
    steered: RunningServer, http: httpx.AsyncClient
) -> None:
    old = limits(steered)
    running = await start(steered, http, max_tokens=60)
    wanted = old | {
        "admission": 0.5,
        "background": 0.25,
        "slo_time_to_first_token_seconds": 30.0,
        "max_waiting_requests": 7,
    }
    answer = put(steered, wanted)

    assert answer.status_code == 200
    assert answer.json() == limits(steered) == wanted
    assert steered.state().thresholds == Thresholds(**wanted)
    assert check_ends_once(parse_events((await running).text)) == "finish"
    assert put(steered, old).json() == old


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"background": 0.99, "admission": 0.9}, "background"),
        ({"admission": 0}, "admission"),
        ({"admission": 1.5}, "admission"),
        ({"admission": "most"}, "admission"),
        ({"slo_time_to_first_token_seconds": -1}, "slo_time_to_first_token_seconds"),
        ({"slo_time_per_output_token_seconds": 0}, "slo_time_per_output_token_seconds"),
        ({"max_queue_seconds": None}, "max_queue_seconds"),
        ({"max_waiting_requests": 0}, "max_waiting_requests"),
        ({"admision": 0.5}, None),
    ],
)
def test_contradictory_limits_are_refused_and_change_nothing(
    steered: RunningServer, change: dict[str, Any], param: str | None
) -> None:
    old = limits(steered)
    response = put(steered, old | change)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert limits(steered) == old


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_limits_that_are_no_numbers_are_refused(steered: RunningServer, text: str) -> None:
    old = limits(steered)
    body = httpx.Request("PUT", "http://x", json=old).content.decode()
    broken = body.replace(
        f'"max_queue_seconds":{old["max_queue_seconds"]}', f'"max_queue_seconds":{text}'
    )
    assert broken != body

    assert httpx.put(steered.url + "/thresholds", content=broken).status_code == 400
    assert limits(steered) == old


def test_a_limit_that_is_left_out_is_not_reset_by_mistake(steered: RunningServer) -> None:
    old = limits(steered)
    without = {name: value for name, value in old.items() if "slo" not in name}

    assert put(steered, without).status_code == 400


def test_a_core_that_is_started_again_has_the_changed_limits(steered: RunningServer) -> None:
    old = limits(steered)
    wanted = old | {"admission": 0.6, "background": 0.3}
    put(steered, wanted)
    os.kill(steered.core_pid(), signal.SIGKILL)
    wait_until(lambda: steered.state().num_core_restarts == 1)
    wait_until(steered.is_ready)

    wait_until(lambda: steered.state().thresholds == Thresholds(**wanted))
    assert put(steered, old).json() == old
