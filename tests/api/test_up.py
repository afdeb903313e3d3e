"""`quire up` with real processes: simulated engines, the gateway, the live page."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from quire_local.up.command import parser
from tests.api.servers import wait_until
from tests.api.ups import RunningUp, descendants, resource, secret, wait_until_gone

KEY = "a-key-that-is-long-enough"
L4 = {"name": "l4", "products": ["NVIDIA-L4"]}
KNOWN = {"source": "hf://Qwen/Qwen3-0.6B@main", "name": "known"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    """Two services, one with a key. Tests leave `plain` as they found it."""
    keyed = resource("keyed", access={"apiKeysSecretRef": {"name": "keys"}})
    plain = resource("plain", priority=1)
    folder = tmp_path_factory.mktemp("up")
    with RunningUp(folder, plain, keyed, secret("keys", team=KEY)) as running:
        running.wait_until_ready("plain", "keyed")
        yield running


def test_two_services_answer_at_one_address_by_their_models(up: RunningUp) -> None:
    assert up.complete("plain").is_success
    refused = up.complete("keyed")
    assert refused.status_code == 401
    assert up.complete("keyed", headers={"authorization": f"Bearer {KEY}"}).is_success
    unknown = up.complete("other")
    assert unknown.status_code == 404
    assert "plain" in unknown.json()["error"]["message"]


def test_the_table_says_what_is_ready(up: RunningUp) -> None:
    rows = [line.split() for line in up.lines if line.startswith("plain ")]
    assert rows[-1] == ["plain", "plain", "True", "1/1", "1/1", "simulated", "AllReady"]


def test_an_engine_that_is_killed_is_started_again_and_that_is_told(up: RunningUp) -> None:
    (engine,) = up.engines(name="plain")
    os.kill(engine["pid"], signal.SIGKILL)
    wait_until(lambda: up.service("plain")["engines"][0]["num_restarts"] == 1)
    up.wait_until_ready("plain")
    assert up.complete("plain").is_success
    assert f"quire: {engine['name']}: !Restarted: ended by SIGKILL; " in up.output


def test_a_gateway_that_is_killed_comes_back_at_its_address(up: RunningUp) -> None:
    (gateway,) = [pid for pid in descendants(up.process.pid) if _runs(pid, "quire_gateway")]
    os.kill(gateway, signal.SIGKILL)
    up.wait_for("quire: gateway: !Restarted")
    wait_until(lambda: up.snapshot()["is_gateway_ready"])
    assert up.complete("plain").is_success


def test_the_page_is_for_this_machine_alone(up: RunningUp) -> None:
    elsewhere = {"host": "example.com"}
    assert httpx.get(up.page_url, headers=elsewhere, timeout=60).status_code == 403
    other_site = {"sec-fetch-site": "cross-site"}
    assert httpx.get(f"{up.page_url}/events", headers=other_site, timeout=60).status_code == 403
    assert httpx.get(up.page_url, timeout=60).is_success


def test_edits_scale_and_roll_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    with RunningUp(tmp_path, resource()) as up:
        up.wait_until_ready()
        (first,) = up.engines()

        up.write(resource(scaling={"minReplicas": 2}))
        wait_until(lambda: len(up.engines()) == 2)

        broken = resource(scaling={"minReplicas": 5, "maxReplicas": 4})
        up.write(broken)
        up.wait_for("scaling.minReplicas: minReplicas is more than maxReplicas")
        assert "minReplicas is more" in up.snapshot()["file_problem"]
        assert len(up.engines()) == 2

        pids = {one["pid"] for one in up.engines()}
        limits = {"target": 40, "background": 50, "admission": 60}
        up.write(resource(scaling={"minReplicas": 2}, memoryPressure=limits))
        wait_until(lambda: {one["admission"] for one in up.engines()} == {0.6})
        assert {one["pid"] for one in up.engines()} == pids  # a limit restarts nothing

        rolled = resource(scaling={"minReplicas": 2}, engine={"maxNumSeqs": 7, "drainSeconds": 2})
        up.write(rolled)
        wait_until(lambda: [one["slots"] for one in up.engines()] == [7, 7])
        wait_until(lambda: not up.engines("ending"))
        assert first["name"] not in [one["name"] for one in up.engines()]
        assert up.snapshot()["file_problem"] == ""

        fixed = rolled["spec"] | {"scaling": {"minReplicas": 2, "mode": "External"}}
        up.write(rolled | {"spec": fixed})
        wait_until(lambda: up.condition("ScalingActive") == ("False", "External"))
        assert len(up.engines()) == 2  # spec.replicas is 1, and nobody has set it anew

        up.write(rolled | {"spec": rolled["spec"] | {"suspend": True}})
        wait_until(lambda: not up.service()["engines"])
        assert up.condition("Ready") == ("False", "Suspended")
        assert up.complete().status_code == 503


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with RunningUp(tmp_path, resource()) as up:
        up.wait_until_ready()
        started = descendants(up.process.pid)
        assert len(started) >= 3  # the gateway, an engine and its core
        is_killed = number == signal.SIGKILL
        assert up.stop(number) == (-signal.SIGKILL if is_killed else 0)
        wait_until_gone(started)
        folders = list(up.cache.joinpath("up").glob("run-*"))
        assert len(folders) == is_killed
    if is_killed:  # the next run removes what it could not
        with RunningUp(tmp_path, resource()) as up:
            up.wait_until_ready()
            assert not folders[0].exists()


@pytest.mark.parametrize("is_hurried", [False, True])
def test_ctrl_c_lets_answers_end_and_a_second_one_does_not(
    tmp_path: Path, is_hurried: bool
) -> None:
    slow = {"drainSeconds": 60, "extraArgs": ["--simulated-step-seconds=0.05"]}
    body = {"model": "chat", "prompt": "Hello", "stream": True, "ignore_eos": True}
    length = {"max_tokens": 3000 if is_hurried else 40}
    with RunningUp(tmp_path, resource(engine=slow)) as up:
        up.wait_until_ready()
        url = f"{up.url}/v1/completions"
        with httpx.stream("POST", url, json=body | length, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            up.process.send_signal(signal.SIGINT)
            up.wait_for("Ctrl-C again does not wait for answers")
            if is_hurried:
                up.process.send_signal(signal.SIGINT)
            rest = "".join(lines)
        assert ("error" in rest) is is_hurried
        assert "[DONE]" in rest or is_hurried
        assert up.process.wait(timeout=60) == 0


def test_what_ends_because_it_was_told_to_is_no_news(tmp_path: Path) -> None:
    """Some send Ctrl-C twice at once, to the process and to its group."""
    with RunningUp(tmp_path, resource()) as up:
        up.wait_until_ready()
        for _ in range(2):
            up.process.send_signal(signal.SIGINT)
        assert up.process.wait(timeout=120) == 0
        up.wait_for("quire: ending")
        assert "Restarted" not in up.output


def test_too_few_gpus_are_a_condition_that_says_what_to_do(tmp_path: Path) -> None:
    wanted = resource(model=KNOWN, accelerators=[L4], scaling={"minReplicas": 2})
    with RunningUp(tmp_path, wanted, flags=("--simulate", "l4=1")) as up:
        wait_until(lambda: len(up.engines()) == 1)
        assert up.condition("GPUsAvailable") == ("False", "NoGPUNode")
        assert "raise --simulate l4=N" in up.engines("waiting")[0]["why"]
        assert up.complete("known").is_success


@pytest.mark.parametrize(
    ("wanted", "status", "words"),
    [
        (resource(model=KNOWN, accelerators=[L4]), 1, "--simulate l4=N stands in for them"),
        (resource(engine={"extraArgs": ["--no-such-flag=1"]}), 1, "no-such-flag"),
        (
            resource(
                model={"source": "https://127.0.0.1:9/m.gguf"}, accelerators=[{"name": "cpu"}]
            ),
            1,
            "no service can become ready: chat:",
        ),
        (resource(accelerators=[{"name": "l4"}]), 2, "spec.accelerators[0]: products is needed"),
    ],
)
def test_what_can_never_be_ready_ends_with_the_reason(
    tmp_path: Path, wanted: dict[str, object], status: int, words: str
) -> None:
    with RunningUp(tmp_path, wanted) as up:
        assert up.process.wait(timeout=120) == status
        wait_until(lambda: "quire: error:" in up.output)
        assert words in up.output.partition("quire: error:")[2]


@pytest.mark.parametrize("flag", ["--port", "--page-port"])
def test_a_port_that_is_taken_is_told_and_nothing_else(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with RunningUp(tmp_path, resource(), flags=(flag, port)) as up:
            assert up.process.wait(timeout=120) == 2
            wait_until(lambda: "quire: error:" in up.output)
            told = up.output.partition("quire: error:")[2]
            assert port in told
            named = set(re.findall("--[a-z-]+", told))
            assert flag in named
            assert named <= set(re.findall("--[a-z-]+", parser().format_help()))
            assert "Traceback" not in up.output
            assert "is started again" not in up.output
            assert up.output.count("quire: error:") == 1


def test_make_run_asks_a_real_model_and_goes_on_serving(tmp_path: Path) -> None:
    cache = os.environ.get("QUIRE_CACHE", str(Path.home() / ".cache" / "quire"))
    program, env = "quire_local.try_out", {"QUIRE_CACHE": cache}
    with RunningUp(tmp_path, program=program, env=env) as up:
        wait_until(lambda: 'Who are you?"}], "temperature": 0' in up.output, seconds=300)
        assert "> What is the capital of France?\nThe capital of France is Paris" in up.output
        assert up.complete("SmolLM2-135M-Instruct.Q4_1").is_success
        started = descendants(up.process.pid)
        assert up.stop() == 0
        wait_until_gone(started)


def _runs(pid: int, module: str) -> bool:
    try:
        return f"\0{module}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
