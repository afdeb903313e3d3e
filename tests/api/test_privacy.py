"""What clients say is nowhere in what the server writes of itself."""

import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until

CANARY = "CaNaRy-7f3a"
KEY = f"sk-{CANARY}"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def odd_bodies() -> list[tuple[str, bytes]]:
    """Requests that are answered, refused, or that something stumbles over; all have a canary."""
    message = {"role": "user", "content": CANARY}
    chat = {"model": MODEL, "messages": [message], "max_tokens": 2}
    bodies: list[tuple[str, Any]] = [
        (CHAT, chat),
        (CHAT, chat | {"stream": True}),
        (CHAT, chat | {"model": CANARY}),
        (CHAT, chat | {CANARY: CANARY}),
        (CHAT, chat | {"user": CANARY, "temperature": CANARY}),
        (CHAT, chat | {"messages": [{"role": CANARY, "content": CANARY}]}),
        (CHAT, chat | {"messages": [message | {"content": [{"type": CANARY}]}]}),
        (CHAT, chat | {"messages": CANARY}),
        (CHAT, chat | {"max_tokens": 10**9}),
        (COMPLETIONS, {"model": MODEL, "prompt": CANARY * 50_000, "max_tokens": 2}),
        (COMPLETIONS, {"model": MODEL, "prompt": [CANARY], "max_tokens": 2}),
        (COMPLETIONS, {"model": MODEL, "prompt": CANARY, "stop": [CANARY], "max_tokens": 20}),
        (COMPLETIONS, {"model": MODEL, "prompt": CANARY, "logit_bias": {CANARY: 1}}),
        (COMPLETIONS, {"model": MODEL, "prompt": CANARY, "seed": CANARY}),
        ("/tokenize", {"model": MODEL, "prompt": CANARY}),
        ("/thresholds", {CANARY: CANARY}),
        ("/drain", {CANARY: CANARY}),
        (f"/v1/{CANARY}", {"prompt": CANARY}),
    ]
    raw = [
        (CHAT, f'{{"model": "{CANARY}'.encode()),
        (CHAT, CANARY.encode() + b"\xff\xfe"),
        (CHAT, b"[" * 100_000 + CANARY.encode()),
        (COMPLETIONS, json.dumps({"model": MODEL, "prompt": "\ud800" + CANARY}).encode()),
    ]
    return [(path, json.dumps(body).encode()) for path, body in bodies] + raw


def send_all(url: str, key: str | None) -> list[int]:
    """Send every odd request, and some that are not even HTTP."""
    headers = {
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "x-request-id": f"{CANARY} with spaces",
        "cookie": CANARY,
        "user-agent": CANARY,
    }
    statuses = []
    with httpx.Client(base_url=url, timeout=60, headers=headers) as client:
        for path, body in odd_bodies():
            statuses.append(client.post(path, content=body, params={"q": CANARY}).status_code)
        for name in ("x-quire-salt", "x-quire-priority", "x-quire-gateway", "traceparent"):
            body = odd_bodies()[0][1]
            statuses.append(client.post(CHAT, content=body, headers={name: CANARY}).status_code)
        statuses.append(client.get(f"/v1/models/{CANARY}").status_code)
        statuses.append(client.request(CANARY, "/").status_code)
    host, port = url.removeprefix("http://").split(":")
    for junk in (b"%b\r\n\r\n", b"GET /%b\x00 HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nx: %b"):
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(junk % CANARY.encode())
            raw.settimeout(0.2)
            raw.recv(4096)
    return statuses


@pytest.fixture(params=["text", "json"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"{request.param}.log"


def serve(output: Path, *flags: str, env: dict[str, str] | None = None) -> RunningServer:
    """A server that writes its standard error to a file."""
    wanted = ("--log-format", output.stem, "--log-requests")
    return RunningServer(*flags, *wanted, env=env, stderr=output)


def check(output: Path, server: RunningServer, pages: list[str]) -> list[str]:
    """Nothing that was written has the canary; returns the log's lines."""
    text = output.read_text() + "".join(server.output)
    for written in (text, *pages):
        assert CANARY not in written
        assert "Traceback" not in written
    lines = output.read_text().splitlines()
    if output.stem == "json":
        for line in lines:
            assert json.loads(line)["message"]
    return lines


def test_no_request_however_odd_is_quoted(output: Path) -> None:
    with serve(output, *SIMULATED, "--simulated-step-seconds", "0.001", "--api-key", KEY) as server:
        statuses = send_all(server.url, KEY) + send_all(server.url, f"wrong-{KEY}")
        page = server.get("/metrics").text
        server.stop()
        server.process.wait(timeout=30)
    lines = check(output, server, [page])

    assert {200, 400, 401, 404} <= set(statuses)
    assert max(statuses) < 500
    assert sum("request" in line for line in lines) > 40


def test_a_real_model_and_its_chat_template_quote_nothing(tmp_path: Path) -> None:
    output = tmp_path / "json.log"
    flags = ("--served-model-name", MODEL, "--max-model-len", "2048", "--max-num-blocks", "512")
    with serve(output, *flags, "--log-level", "info") as server:
        statuses = send_all(server.url, None)
        page = server.get("/metrics").text
        server.stop()
        server.process.wait(timeout=30)
    check(output, server, [page])

    assert {200, 400, 404} <= set(statuses)
    assert max(statuses) < 500


def test_a_core_that_dies_in_the_middle_quotes_nothing(output: Path) -> None:
    body = {"model": MODEL, "prompt": CANARY * 20, "max_tokens": 2000, "stream": True}
    with serve(output, *SIMULATED, "--simulated-step-seconds", "0.02") as server:
        with httpx.stream("POST", server.url + COMPLETIONS, json=body, timeout=60) as response:
            pieces = response.iter_bytes()
            next(pieces)
            os.kill(server.core_pid(), signal.SIGSEGV)
            rest = b"".join(pieces)
        page = server.get("/metrics").text
        wait_until(server.is_ready)
    lines = check(output, server, [page])

    assert rest.endswith(b"data: [DONE]\n\n")
    assert any("the core process ended" in line for line in lines)


FAILING = {
    "a command that says it all": (
        """/bin/sh -c 'echo "cannot answer $HETERO_PROMPT" >&2; exit 3'""",
        "a command ended with 3",
    ),
    "a command that is killed": (
        """/bin/sh -c 'echo "$HETERO_PROMPT" >&2; kill -9 $$'""",
        "a command ended with -9",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_command_that_fails_quotes_nothing(output: Path, case: str) -> None:
    command, told = FAILING[case]
    with serve(output, "--command", command) as server:
        body = {"model": "command", "prompt": CANARY, "max_tokens": 5}
        assert server.post(COMPLETIONS, body).status_code == 500
        page = server.get("/metrics").text
    lines = check(output, server, [page])

    assert any(told in line for line in lines)


BREAK_IN = """
import sys
from quire_engine.server.routes import generate

def fail(*arguments, **options):
    raise ValueError(repr((arguments, options)))

generate.check_request = fail
for name in ("chat", "completions"):
    module = __import__(f"quire_engine.server.routes.{name}", fromlist=[name])
    module.check_request = fail
from quire_engine.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_bug_is_answered_with_500_and_logged_by_its_place(output: Path) -> None:
    """A fault that quotes the whole request, as careless code would."""
    flags = (*SIMULATED, "--port", "0", "--log-format", output.stem)
    with RunningServer(*flags, stderr=output, program=("-c", BREAK_IN)) as server:
        response = server.post(
            COMPLETIONS, {"model": MODEL, "prompt": CANARY}, headers={"x-request-id": "known-1"}
        )
        page = server.get("/metrics").text
        assert server.is_ready()
    lines = check(output, server, [page])

    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert response.headers["x-request-id"] == "known-1"
    text = "\n".join(lines)
    assert "a request failed unexpectedly" in text
    assert "in fail" in text
    assert "builtins.ValueError" in text
    assert "known-1" in text
