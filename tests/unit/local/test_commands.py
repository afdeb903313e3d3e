"""The commands as processes, with the real server and a simulated engine."""

import os
import subprocess
import sys

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
