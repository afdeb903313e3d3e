"""`quire top` beside real gateways, engines and `quire up`."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.gateways import RunningGateway, service
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until
from tests.api.ups import RunningUp, resource

_SECONDS = 120


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningServer]:
    with RunningServer(*SIMULATED) as running:
        yield running


def _top(*flags: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "quire_local.cli", "top", *flags]
    inherited = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, env=inherited | (env or {})
    )


def _management(gateway: RunningGateway) -> str:
    return str(gateway.manage("/healthz").url).removesuffix("/healthz")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_once_prints_a_table_without_colours_and_json_has_the_same(
    engine: RunningServer, tmp_path: Path
) -> None:
    with RunningGateway(tmp_path / "routing.json", [service([engine])]) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)
        url = _management(gateway)
        gateway.post("/v1/completions", {"model": MODEL, "prompt": "Once", "max_tokens": 8})
        table = _top(url, "--once")
        document = _top(url, "--once", "--json", "--interval=0.1")
        other = _top(url, "--once", "--interval=0.1", "--service=nope")

    assert other.returncode == 1
    assert "no service nope: there are default/chat" in other.stderr
    assert table.returncode == 0, table.stderr
    assert "\x1b" not in table.stdout
    for word in (
        "default/chat",
        "REPLICA",
        "PRESSURE",
        "TOKENS/S",
        "ready",
        "STATE",
        "AGE",
        "requests/s",
    ):
        assert word in table.stdout
    [shown] = json.loads(document.stdout)["services"]
    [replica] = shown["replicas"]
    assert replica["blocks"]["total"] == engine.state().blocks.total
    assert replica["binding"] in ("blocks", "seats", "first_token", "step")
    assert replica["schema_version"] == 1
    assert replica["tokens_per_second"] is not None


def test_it_goes_on_when_a_gateway_that_went_away_is_back(
    engine: RunningServer, tmp_path: Path
) -> None:
    port = _free_port()
    routing, flags = tmp_path / "routing.json", ("--management-port", str(port))
    command = [sys.executable, "-m", "quire_local.cli", "top", f"http://127.0.0.1:{port}"]
    with RunningGateway(routing, [service([engine])], *flags):
        process = subprocess.Popen(
            [*command, "--json", "--interval=0.2"], stdout=subprocess.PIPE, text=True
        )
        _read_until(process, lambda view: view["services"] and not view["problem"])
    away = _read_until(process, lambda view: bool(view["problem"]))
    assert "does not answer" in away["problem"]
    assert away["services"], "what was known last is still shown"
    with RunningGateway(routing, [service([engine])], *flags):
        _read_until(process, lambda view: view["services"] and not view["problem"])
        process.send_signal(signal.SIGINT)
        assert process.wait(_SECONDS) == 0
    assert process.stdout is not None
    process.stdout.close()


def test_nobody_there_is_an_error_that_says_so() -> None:
    ran = _top(f"http://127.0.0.1:{_free_port()}", "--once")
    assert ran.returncode == 1
    assert "does not answer" in ran.stderr


def test_what_is_no_gateway_is_told_from_one(engine: RunningServer) -> None:
    ran = _top(engine.url, "--once")
    assert ran.returncode == 1
    assert "say the gateway's management port (8090)" in ran.stderr


def test_the_screen_of_a_terminal_is_given_back(engine: RunningServer, tmp_path: Path) -> None:
    with RunningGateway(tmp_path / "routing.json", [service([engine])]) as gateway:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "quire_local.cli", "top", _management(gateway)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color"},
        )
        os.close(theirs)
        shown = _read_terminal(ours, b"default/chat")
        process.send_signal(signal.SIGINT)
        shown += _read_terminal(ours, b"\x1b[?1049l")
        assert process.wait(_SECONDS) == 0
        os.close(ours)
    assert b"\x1b[?1049h" in shown


def test_it_shows_what_quire_up_runs(tmp_path: Path) -> None:
    with RunningUp(tmp_path, resource(), flags=("--quiet",)) as up:
        up.wait_until_ready("chat")
        ran = _top(up.page_url, "--once", "--json", "--interval=0.1")
        assert ran.returncode == 0, ran.stderr
        [shown] = json.loads(ran.stdout)["services"]
        assert (shown["name"], len(shown["replicas"])) == ("chat", 1)
        assert up.stop() == 0


def _read_until(process: "subprocess.Popen[str]", condition: Any) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        view: dict[str, Any] = json.loads(line)
        if condition(view):
            return view
    raise AssertionError("it has ended")


def _read_terminal(file: int, wanted: bytes) -> bytes:
    shown, deadline = b"", time.monotonic() + _SECONDS
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([file], [], [], 1.0)[0]:
            shown += os.read(file, 65536)
    return shown
