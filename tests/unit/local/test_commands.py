"""The commands as processes, with the real server and a simulated engine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

SIMULATED = ["--simulate", "h100", "--model-shape", "llama3-8b", "--simulated-step-seconds", "0"]

CHOICES = ["--temperature", "1", "--top-p", "0.9", "--top-k", "5", "--stop", "~", "--seed", "7"]


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("QUIRE_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}


def test_complete_answers_on_standard_output_and_leaves_nothing_running() -> None:
    command = [sys.executable, "-m", "quire_local.cli", "complete", "--input", "Hello"]
    with subprocess.Popen(
        [*command, "--max-tokens", "8", *CHOICES, *SIMULATED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        process_group=0,
    ) as process:
        output, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages
    assert len(output.split()) >= 1
    assert "quire:" not in output
    assert "quire: ready" in messages
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.fixture
def serving() -> Iterator[subprocess.Popen[str]]:
    """`make run`'s program, once it has asked its question and goes on serving."""
    command = [sys.executable, "-m", "quire_local.try_out", "--port", "0", "--drain-grace-seconds"]
    with subprocess.Popen(
        [*command, "0", *SIMULATED],
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
        process_group=0,
    ) as process:
        try:
            assert process.stdout is not None
            assert any('Who are you?"}], "temperature": 0' in line for line in process.stdout)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_served_model_cleanly(
    serving: subprocess.Popen[str], number: signal.Signals
) -> None:
    serving.send_signal(number)
    assert serving.wait(timeout=60) == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(serving.pid, 0)
