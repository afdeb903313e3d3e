"""The gateway in front of real engines: what passes, who may, who waits, and how it ends."""

import contextlib
import hashlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.api.gateways import (
    CODE,
    GATEWAY,
    FakeEngine,
    FakeEngines,
    RunningGateway,
    answer_ok,
    service,
)
from tests.api.servers import MODEL, RunningServer, wait_until
from tests.unit.gateway.builders import document

COMPLETIONS = "/v1/completions"


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once", "max_tokens": 8} | changes


def key(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} | changes


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeEngine]:
    with FakeEngines() as fakes:
        yield fakes.add(answer_ok)


@pytest.fixture(scope="module")
def gateway(
    server: RunningServer,
    fake: FakeEngine,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningGateway]:
    """Services: chat, with a quick engine; fake; keys, which asks for some."""
    keys = [
        key("all"),
        key("other", models=["nothing"]),
        key("few", requests_per_minute=1),
        key("idle", max_priority="background", salt="s1"),
    ]
    documents = [
        service([server]),
        service([fake], name="fake", model_names=["fake"]),
        service([fake], name="keys", model_names=["guarded"], api_keys=keys),
    ]
    path = tmp_path_factory.mktemp("gateway") / "routing.json"
    flags = ("--max-body-bytes", "1048576", "--log-requests", "--proxied-hosts", "127.0.0.1")
    with RunningGateway(path, documents, *flags) as running:
        for name in ("chat", "fake", "keys"):
            wait_until(lambda name=name: running.num_eligible(name) == 1)  # type: ignore[misc]
        yield running


def test_its_log_says_which_code_requests_go_through(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with RunningGateway(tmp_path / "r.json", [service([])], stderr=log):
        assert f"requests go through {CODE}\n" in log.read_text()


def test_openais_client_gets_what_it_gets_from_the_engine(
    gateway: RunningGateway, client: openai.OpenAI
) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me more"}],
        "max_tokens": 12,
        "seed": 5,
    }
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as through:
        whole = [c.chat.completions.create(**asked) for c in (client, through)]
        streams = [list(c.chat.completions.create(**asked, stream=True)) for c in (client, through)]
        assert MODEL in [model.id for model in through.models.list()]
        with pytest.raises(openai.NotFoundError):
            through.chat.completions.create(**asked | {"model": "unknown"})
        with pytest.raises(openai.BadRequestError):
            through.chat.completions.create(**asked | {"temperature": -1})
    assert whole[0].choices == whole[1].choices
    usages = [one.usage.total_tokens for one in whole if one.usage]
    assert usages[0] == usages[1]
    # how many tokens come in a chunk depends on how busy the machine is
    texts = ["".join(c.delta.content or "" for one in s for c in one.choices) for s in streams]
    assert texts[0] == texts[1] == whole[0].choices[0].message.content
    assert [s[-1].choices[0].finish_reason for s in streams] == ["length", "length"]


def test_bodies_pass_untouched_and_heads_say_what_the_gateway_says(
    gateway: RunningGateway, fake: FakeEngine
) -> None:
    body = b'{ "model" :"fake",\n "prompt": "\\u00e9 x", "unknown": 1e5, "max_tokens": 3 }'
    sent = {
        "authorization": "Bearer secret",
        "x-quire-admit": "wait",
        "x-quire-gateway": "me;1",
        "x-quire-salt": "theirs",
        "x-quire-deadline-ms": "60000",
        "x-quire-priority": "background",
        "x-forwarded-for": "10.1.1.1",
        "cookie": "a=b",
        "x-custom": "kept",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
    }
    answer = httpx.post(gateway.url + COMPLETIONS, content=body, headers=sent, timeout=60)

    assert answer.json() == {"from": "fake"}
    request = fake.requests[-1]
    assert request.body == body
    got = request.headers()
    assert got["x-quire-admit"] == "now"
    assert got["x-quire-priority"] == "background"
    assert 0 < int(got["x-quire-deadline-ms"]) <= 60000
    assert got["x-custom"] == "kept"
    assert got["host"] == fake.url.removeprefix("http://")
    name, _, counter = got["x-quire-gateway"].partition(";")
    assert name not in ("", "me")
    assert int(counter) > 0
    dropped = {"authorization", "x-quire-salt", "x-forwarded-for", "cookie", "x-hop"}
    assert not dropped & got.keys()
    assert got["x-request-id"] == answer.headers["x-request-id"]


def test_a_kept_connection_is_used_again_on_both_sides(
    gateway: RunningGateway, fake: FakeEngine
) -> None:
    with httpx.Client(timeout=60) as http:
        http.post(gateway.url + COMPLETIONS, json=completion(model="fake"))
        num_connections = fake.num_connections
        for _ in range(20):
            answer = http.post(gateway.url + COMPLETIONS, json=completion(model="fake"))
            assert answer.status_code == 200
    assert fake.num_connections == num_connections


def raw(gateway: RunningGateway, *pieces: bytes) -> bytes:
    """Send bytes, and return all that comes until the gateway closes."""
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(1 << 16):
                received += data
    return received


def post(body: bytes, version: bytes = b"1.1", *headers: bytes) -> bytes:
    lines = [b"POST /v1/completions HTTP/" + version, b"host: x"]
    lines += [b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_http_1_0_gets_its_stream_without_chunks(gateway: RunningGateway) -> None:
    body = json.dumps(completion(stream=True)).encode()
    head, _, text = raw(gateway, post(body, b"1.0")).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert text.startswith(b"data: {")
    assert text.endswith(b"data: [DONE]\n\n")


def test_requests_that_are_sent_ahead_are_answered_in_order(gateway: RunningGateway) -> None:
    first = json.dumps(completion(model="fake")).encode()
    last = json.dumps(completion()).encode()
    requests = post(first) + post(first) + post(last, b"1.1", b"connection: close")
    received = raw(gateway, requests)

    assert received.count(b"HTTP/1.1 200 ") == 3
    assert received.count(b'{"from": "fake"}') == 2
    assert received.rindex(b'"from": "fake"') < received.index(b'"text_completion"')


@pytest.mark.parametrize("path", [b"/healthz", b"/nothing", b"/v1/completions", b"/v1/models/none"])
def test_an_answer_to_head_is_a_head_alone(gateway: RunningGateway, path: bytes) -> None:
    request = b"HEAD %b HTTP/1.1\r\nhost: x\r\n" % path
    received = raw(gateway, request + b"\r\n", request + b"connection: close\r\n\r\n")
    first, second, rest = received.split(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 ")
    assert second.startswith(b"HTTP/1.1 ")
    assert rest == b""


@pytest.mark.parametrize("path", [b"/", b"/docs", b"/metrics", b"/v1/nothing"])
def test_who_is_lost_is_told_where_to_begin(gateway: RunningGateway, path: bytes) -> None:
    received = raw(gateway, b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path)
    assert received.startswith(b"HTTP/1.1 404 ")
    assert b"There is no such route; /v1/models lists what can be asked" in received


def test_who_asks_for_another_protocol_is_answered_in_this_one(gateway: RunningGateway) -> None:
    body = json.dumps(completion(model="fake")).encode()
    asks = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AA")
    last = post(body, b"1.1", b"connection: close")
    received = raw(gateway, post(body, b"1.1", *asks), last)
    assert received.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"this is no HTTP\r\n\r\n"], 400),
        ([b"GET /v1/models HTTP/1.1\r\nx: " + b"a" * 70_000], 431),
        ([b"GET /v1/models HTTP/1.1\r\n", *[b"x: aaaaaaaaaaaaaaaaa\r\n" * 500] * 20], 431),
        ([post(b"x" * (2 << 20))], 413),
        (
            [
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
                *[b"40000\r\n" + b"x" * 0x40000 + b"\r\n"] * 6,
            ],
            413,
        ),
        (
            [
                post(b"0\r\n\r\n", b"1.1", b"transfer-encoding: chunked"),
            ],
            400,
        ),
        ([post(b"{", b"1.0")], 400),
        ([post(b"[]", b"1.0")], 400),
        ([post(b'{"model": 5}', b"1.0")], 400),
        ([post(b'{"model": "unknown"}', b"1.0")], 404),
        ([post(b'{"model": "fake"}', b"1.0", b"x-quire-priority: urgent")], 400),
        ([post(b'{"model": "fake"}', b"1.0", b"x-quire-deadline-ms: -1")], 400),
        ([b"GET /v1/completions HTTP/1.0\r\n\r\n"], 405),
        ([b"GET /metrics HTTP/1.0\r\n\r\n"], 404),
        ([b"GET /fleet HTTP/1.0\r\n\r\n"], 404),
    ],
)
def test_bad_requests_get_openais_errors(
    gateway: RunningGateway, pieces: list[bytes], status: int
) -> None:
    head, _, body = raw(gateway, *pieces).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_keys_decide_who_may(gateway: RunningGateway, fake: FakeEngine) -> None:
    def ask(name: str | None) -> httpx.Response:
        headers = bearer(name) if name else {}
        return gateway.post(COMPLETIONS, completion(model="guarded"), headers=headers)

    assert [ask(name).status_code for name in (None, "wrong", "other", "all")] == [
        401,
        401,
        403,
        200,
    ]
    assert [ask("few").status_code for _ in range(2)] == [200, 429]
    assert ask("idle").status_code == 200
    got = fake.requests[-1].headers()
    assert (got["x-quire-priority"], got["x-quire-salt"]) == ("background", "s1")
    limited = ask("few")
    assert 1 <= int(limited.headers["retry-after"]) <= 60

    models = gateway.get("/v1/models", headers=bearer("all")).json()["data"]
    assert {one["id"] for one in models} == {MODEL, "fake", "guarded"}
    assert "guarded" not in gateway.get("/v1/models").text
    assert gateway.get("/v1/models/guarded").status_code == 404


@pytest.fixture
def slow(slow_server: RunningServer, tmp_path: Path) -> Iterator[RunningGateway]:
    """One engine with four seats and long steps, and a queue for one."""
    tight = document()["thresholds"] | {"max_waiting_requests": 1}
    documents = [service([slow_server], thresholds=tight)]
    with RunningGateway(tmp_path / "r.json", documents, "--drain-grace-seconds", "0") as running:
        wait_until(lambda: running.num_eligible() == 1)
        slow_server.wait_until_idle()
        yield running


def begin_stream(
    stack: contextlib.ExitStack, gateway: RunningGateway, max_tokens: int
) -> Iterator[str]:
    """Begin a stream, and return what is still to come; it ends when that is dropped."""
    http = stack.enter_context(httpx.Client(timeout=60))
    body = completion(max_tokens=max_tokens, stream=True)
    answer = stack.enter_context(http.stream("POST", gateway.url + COMPLETIONS, json=body))
    assert answer.status_code == 200
    pieces = answer.iter_text()
    next(pieces)
    return pieces


def num_waiting(gateway: RunningGateway) -> int:
    return int(gateway.fleet()["queue"]["interactive"]["waiting"])


def test_who_finds_no_room_waits_and_who_finds_the_queue_full_is_told_when_to_come(
    slow: RunningGateway, slow_server: RunningServer
) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as streams:
            _running = [begin_stream(streams, slow, 4000) for _ in range(4)]
            pool = stack.enter_context(ThreadPoolExecutor(1))
            patient = pool.submit(slow.post, COMPLETIONS, completion())
            wait_until(lambda: num_waiting(slow) == 1)
            refused = slow.post(COMPLETIONS, completion())
        # the four clients have left, and the one that waited has a seat
        assert patient.result(60).status_code == 200
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert 1000 <= int(refused.headers["retry-after-ms"]) <= 60000
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    slow_server.wait_until_idle()


def test_a_client_that_leaves_the_queue_is_forgotten(slow: RunningGateway) -> None:
    with contextlib.ExitStack() as streams:
        _running = [begin_stream(streams, slow, 4000) for _ in range(4)]
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(slow.url + COMPLETIONS, json=completion(), timeout=1)
        wait_until(lambda: num_waiting(slow) == 0)
    wait_until(lambda: all(one["in_flight"] == 0 for one in slow.fleet()["engines"]))


def test_sigterm_lets_streams_end_and_takes_nothing_new(slow: RunningGateway) -> None:
    with contextlib.ExitStack() as stack:
        rest = begin_stream(stack, slow, 40)
        slow.stop(signal.SIGTERM)
        text = "".join(rest)
    assert text.endswith("data: [DONE]\n\n")
    assert "error" not in text
    assert slow.process.wait(60) == 0
    with pytest.raises(httpx.ConnectError):
        slow.get("/healthz")


def test_a_second_signal_ends_streams_with_an_error_event(slow: RunningGateway) -> None:
    with contextlib.ExitStack() as stack:
        rest = begin_stream(stack, slow, 4000)
        slow.stop(signal.SIGTERM)
        slow.stop(signal.SIGINT)
        text = "".join(rest)
    assert "shutting_down" in text
    assert slow.process.wait(60) == 0


def test_a_broken_routing_file_leaves_the_last_good_one_in_force(
    server: RunningServer, tmp_path: Path
) -> None:
    with RunningGateway(tmp_path / "r.json", [service([server])]) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)
        gateway.routing.write_text('[{"schema_version": 99}]')
        stale = "quire_gateway_routing_stale"
        wait_until(lambda: f"{stale} 1.0" in gateway.manage("/metrics").text)
        assert gateway.post(COMPLETIONS, completion()).status_code == 200
        gateway.write([service([server], model_names=["renamed", "team/own model"])])
        wait_until(lambda: gateway.get("/v1/models/renamed").status_code == 200)
        assert gateway.get("/v1/models/team%2Fown%20model").json()["id"] == "team/own model"
        assert f"{stale} 0.0" in gateway.manage("/metrics").text
        assert gateway.post(COMPLETIONS, completion()).status_code == 404


def test_what_it_cannot_start_with_is_said(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{")
    for flags, said in (
        ([], "--routing is missing"),
        (["--routing", str(tmp_path / "none.json")], "cannot read"),
        (["--routing", str(wrong)], "not valid"),
        (["--routing", str(wrong), "--stale-seconds", "0"], "above 0"),
    ):
        run = subprocess.run(
            [sys.executable, *GATEWAY, *flags], capture_output=True, text=True, check=False
        )
        assert run.returncode == 2
        assert said in run.stderr
