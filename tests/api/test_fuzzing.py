"""Schemathesis over our own OpenAPI document: what it allows is taken, what it forbids is refused.

Longer: `make fuzz`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.servers import SIMULATED, RunningServer

CONFIG = Path(__file__).with_name("schemathesis.toml")
ENDLESS = ("/state/stream", "/state/live")
EXAMPLES = os.environ.get("QUIRE_FUZZ_EXAMPLES", "5")
"""Examples of each route; the cases are many times as many."""
_CASES = re.compile(r"^ +([0-9,]+) generated", re.MULTILINE)


@pytest.fixture
def short_server() -> Iterator[RunningServer]:
    """Answers are short and take no time."""
    flags = ("--simulated-step-seconds", "0", "--max-model-len", "256")
    with RunningServer(*SIMULATED, *flags) as running:
        yield running


def fuzz(url: str, folder: Path, *flags: str) -> str:
    """Run Schemathesis; returns what it prints."""
    program = Path(sys.executable).with_name("schemathesis")
    command: list[str | Path] = [
        program,
        "--config-file",
        CONFIG,
        "run",
        f"{url}/openapi.json",
        "--no-color",
    ]
    command += ["--generation-deterministic", "--max-examples", EXAMPLES, *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_the_routes_do_what_their_document_says(
    short_server: RunningServer, tmp_path: Path
) -> None:
    # a drained server refuses everything: that route comes by itself
    excluded = [word for path in (*ENDLESS, "/drain") for word in ("--exclude-path", path)]
    output = fuzz(short_server.url, tmp_path, *excluded)

    match = _CASES.search(output)
    assert match is not None
    num_cases = int(match[1].replace(",", ""))
    print(f"{num_cases} cases")
    assert num_cases > min(100 * int(EXAMPLES), 5000)
    short_server.wait_until_idle()


def test_draining_and_back_does_what_its_document_says(
    short_server: RunningServer, tmp_path: Path
) -> None:
    fuzz(short_server.url, tmp_path, "--include-path", "/drain")
    httpx.delete(short_server.url + "/drain", timeout=10)
    short_server.wait_until_idle()
