"""Several API processes before one core: one engine to whoever asks, whichever of them answers."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from quire_engine.protocol import metric_names as names
from tests.api.scraping import scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer, is_alive, wait_until
from tests.api.worker_connections import (
    Connections,
    ask,
    begin_stream,
    goes_on,
    read_rest,
    worker_pids,
)

COMPLETIONS = "/v1/completions"
STEPS_OF_20_MS = (*SIMULATED, "--simulated-step-seconds", "0.02")
MANY_TOKENS = 8000
"""More than are generated while a test runs."""
SECONDS = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningServer]:
    """Three workers; every test leaves them idle and in service."""
    flags = ("--api-workers", "3", "--core-restart-backoff-seconds", "0.2")
    with RunningServer(*STEPS_OF_20_MS, *flags) as running:
        yield running


@pytest.fixture
def connections(shared: RunningServer) -> Iterator[Connections]:
    """Connections to the shared server, of which all workers live."""
    wait_until(lambda: len(worker_pids(shared)) == 3, seconds=SECONDS)
    with Connections(shared) as made:
        yield made


@pytest.fixture
def talks(connections: Connections) -> list[socket.socket]:
    """A connection to each worker."""
    return [own[0] for own in connections.open_to_each().values()]


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 5, "ignore_eos": True} | changes


def ask_all(talks: list[socket.socket], path: str) -> list[tuple[int, Any]]:
    return [ask(talk, "GET", path) for talk in talks]


def _is_ready(talk: socket.socket) -> bool:
    return bool(ask(talk, "GET", "/readyz")[0] == 200)


def ended(server: RunningServer, reason: str) -> float:
    return scrape(server)[f"{names.REQUEST_SUCCESS}{{finished_reason={reason}}}"]


def test_a_killed_worker_ends_its_own_streams_and_no_other(
    shared: RunningServer, connections: Connections
) -> None:
    aborted_before = ended(shared, "abort")
    restarts_before = scrape(shared)[names.API_WORKER_RESTARTS]
    streams = connections.open_to_each(each=3)
    for stream in (stream for own in streams.values() for stream in own):
        begin_stream(stream, MANY_TOKENS)
    victim, *others = streams
    num_others = sum(len(streams[pid]) for pid in others)

    os.kill(victim, signal.SIGKILL)

    for stream in streams[victim]:
        assert b"[DONE]" not in read_rest(stream)
    wait_until(lambda: shared.state().sequences.running == num_others, seconds=SECONDS)
    for stream in (stream for pid in others for stream in streams[pid]):
        assert goes_on(stream, 5)
    assert ended(shared, "abort") == aborted_before + len(streams[victim])
    connections.close()
    shared.wait_until_idle()
    wait_until(lambda: victim not in (pids := worker_pids(shared)) and len(pids) == 3, SECONDS)
    connections.open_to_each()
    assert scrape(shared)[names.API_WORKER_RESTARTS] == restarts_before + 1


def test_every_worker_exports_what_all_have_counted(
    shared: RunningServer, talks: list[socket.socket]
) -> None:
    counters = (names.GENERATION_TOKENS, names.PROMPT_TOKENS, f"{names.TIME_TO_FIRST_TOKEN}_count")
    before, ended_before = scrape(shared), ended(shared, "length")
    for number in range(30):
        status, _ = ask(talks[number % 3], "POST", COMPLETIONS, completion())
        assert status == 200

    pages = [text for _, text in ask_all(talks, "/metrics")]
    assert len({_requests_only(page) for page in pages}) == 1
    found = scrape(shared)
    grown = [found[name] - before[name] for name in counters]
    assert grown == [30 * 5, 30 * 4, 30]
    assert ended(shared, "length") == ended_before + 30


def _requests_only(page: str) -> str:
    """A page without what the core says of the moment, and what asking for it changes."""
    lines = page.splitlines()
    return "\n".join(line for line in lines if line.startswith(("vllm:request_", "vllm:time_to")))


def test_counts_outlive_a_worker_and_go_on_in_its_place(
    shared: RunningServer, connections: Connections, talks: list[socket.socket]
) -> None:
    for talk in talks:
        assert ask(talk, "POST", COMPLETIONS, completion())[0] == 200
    before = scrape(shared)[names.GENERATION_TOKENS]
    victim = connections.owner(talks[0])

    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not is_alive(victim), SECONDS)
    assert scrape(shared)[names.GENERATION_TOKENS] == before
    wait_until(lambda: len(worker_pids(shared)) == 3, SECONDS)
    for own in connections.open_to_each().values():
        assert ask(own[0], "POST", COMPLETIONS, completion())[0] == 200

    assert scrape(shared)[names.GENERATION_TOKENS] == before + 3 * 5


def test_a_drain_at_one_worker_is_in_force_at_all_when_it_is_answered(
    shared: RunningServer, connections: Connections, talks: list[socket.socket]
) -> None:
    first, *others = talks
    begin_stream(running := connections.open(), MANY_TOKENS)
    assert ask(first, "POST", "/drain") == (200, {"is_draining": True, "num_in_flight": 1})

    assert ask_all(talks, "/readyz") == [(503, {"status": "draining"})] * 3
    for talk in talks:
        status, answer = ask(talk, "POST", COMPLETIONS, completion())
        assert (status, answer["error"]["code"]) == (503, "draining")
    assert all(state["is_draining"] for _, state in ask_all(talks, "/state"))
    assert goes_on(running, 5)

    assert ask(others[0], "DELETE", "/drain")[0] == 200
    assert ask_all(talks, "/readyz") == [(200, {"status": "ok"})] * 3
    running.close()
    shared.wait_until_idle()


def test_a_drains_time_ends_the_streams_of_every_worker(
    shared: RunningServer, connections: Connections
) -> None:
    streams = [stream for own in connections.open_to_each().values() for stream in own]
    for stream in streams:
        begin_stream(stream, MANY_TOKENS)
    assert ask(first := connections.open(), "POST", "/drain", {"seconds": 0.1})[0] == 200

    for stream in streams:
        rest = read_rest(stream)
        assert b'"error"' in rest
        assert rest.count(b"[DONE]") == 1
    assert ask(first, "DELETE", "/drain")[0] == 200
    shared.wait_until_idle()


def test_limits_changed_at_one_worker_are_in_force_at_all(talks: list[socket.socket]) -> None:
    first, *others = talks
    old = ask(first, "GET", "/thresholds")[1]
    wanted = old | {"admission": 0.5, "background": 0.25}

    assert ask(first, "PUT", "/thresholds", wanted) == (200, wanted)
    assert ask_all(others, "/thresholds") == [(200, wanted)] * 2
    assert ask(others[0], "PUT", "/thresholds", old) == (200, old)
    assert ask(first, "GET", "/thresholds") == (200, old)


def test_a_gateways_request_counts_at_every_worker_once_the_core_has_it(
    shared: RunningServer, talks: list[socket.socket]
) -> None:
    payload = json.dumps(completion()).encode()
    first, second, third = talks
    half = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-quire-gateway: g;5\r\n"
        f"content-length: {len(payload)}\r\n\r\n"
    )
    first.sendall(half.encode() + payload[:9])
    wait_until(lambda: ask(second, "DELETE", "/drain")[1]["num_in_flight"] == 1, SECONDS)
    headers = {"x-quire-gateway": "g;6"}
    assert ask(second, "POST", COMPLETIONS, completion(), headers=headers)[0] == 200

    def included(talk: socket.socket) -> Any:
        return ask(talk, "GET", "/state")[1]["gateways"].get("g")

    for talk in (second, third):
        wait_until(partial(lambda talk: included(talk) == 4, talk), SECONDS)
    first.sendall(payload[9:])
    assert b"200 OK" in first.recv(1 << 16)
    for talk in (second, third):
        wait_until(partial(lambda talk: included(talk) == 6, talk), SECONDS)


def test_forms_and_calls_are_the_same_at_every_worker(talks: list[socket.socket]) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2, 3]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    shared = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "seed": 4}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    call = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    messages = []
    for talk in talks:
        written = _say(talk, shared | {"response_format": form})
        called = _say(talk, shared | call)["tool_calls"][0]["function"]
        messages.append((written["content"], called))

    assert messages == [messages[0]] * 3
    written, called = messages[0]
    assert json.loads(written).keys() == json.loads(called["arguments"]).keys() == {"a", "b"}


def _say(talk: socket.socket, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = ask(talk, "POST", "/v1/chat/completions", body | {"max_tokens": 200})
    assert status == 200, answer
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


def test_all_workers_give_the_same_account_of_an_idle_engine(
    shared: RunningServer, talks: list[socket.socket]
) -> None:
    shared.wait_until_idle()

    def accounts() -> list[Any]:
        states = [state for _, state in ask_all(talks, "/state")]
        return [state | {"age_seconds": 0.0} for state in states]

    wait_until(lambda: (found := accounts()) == [found[0]] * 3, SECONDS)
    cards = [card for _, card in ask_all(talks, "/v1/models")]
    assert cards == [cards[0]] * 3


def test_every_worker_shows_the_live_view(
    connections: Connections, talks: list[socket.socket]
) -> None:
    begin_stream(connections.open(), MANY_TOKENS)
    for talk in talks:
        talk.sendall(b"GET /state/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        shown = b""
        while b'"phase":"decode"' not in shown:
            more = talk.recv(1 << 20)
            assert more
            shown += more


def test_a_core_that_dies_ends_the_streams_of_all_and_all_come_back(
    shared: RunningServer, connections: Connections
) -> None:
    streams = [stream for own in connections.open_to_each().values() for stream in own]
    for stream in streams:
        begin_stream(stream, MANY_TOKENS)
    deaths = shared.state().num_core_restarts

    os.kill(shared.core_pid(), signal.SIGKILL)

    for stream in streams:
        assert b'"error"' in read_rest(stream)
    wait_until(shared.is_ready, SECONDS)
    for talk in streams:
        wait_until(partial(_is_ready, talk), SECONDS)
        assert ask(talk, "POST", COMPLETIONS, completion())[0] == 200
        assert ask(talk, "GET", "/state")[1]["num_core_restarts"] == deaths + 1


def test_sigterm_lets_the_streams_of_all_workers_finish() -> None:
    flags = ("--api-workers", "2", "--drain-grace-seconds", "0", "--api-key", "k")
    with RunningServer(*STEPS_OF_20_MS, *flags) as server, Connections(server) as connections:
        pids = [*worker_pids(server), server.core_pid()]
        to_each = connections.open_to_each(each=2)
        streams = [stream for own in to_each.values() for stream in own]
        for stream in streams:
            begin_stream(stream, 300, key="k")
        talk = connections.open()
        assert ask(talk, "POST", COMPLETIONS, completion())[0] == 401
        server.stop()

        while (answer := ask(talk, "POST", COMPLETIONS, completion(), key="k"))[0] == 200:
            pass
        assert answer[0] == 503
        assert answer[1]["error"]["code"] == "shutting_down"
        for stream in streams:
            rest = read_rest(stream)
            assert b'"finish_reason":"length"' in rest
            assert rest.count(b"[DONE]") == 1
        assert server.process.wait(60) == 0
        assert not any(is_alive(pid) for pid in pids)


def test_a_killed_server_leaves_no_process_behind() -> None:
    with RunningServer(*SIMULATED, "--api-workers", "2") as server:
        pids = [*worker_pids(server), server.core_pid()]
        server.kill()

        wait_until(lambda: not any(is_alive(pid) for pid in pids), SECONDS)
