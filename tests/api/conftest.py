"""Servers that tests share: as few as possible, for each takes a second or two to start."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.api.gateways import RunningGateway, service
from tests.api.servers import SIMULATED, RunningServer, wait_until


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """A simulated model with steps of 2 ms. Tests leave it as they found it: idle."""
    with RunningServer(*SIMULATED, "--simulated-step-seconds", "0.002") as running:
        yield running


@pytest.fixture(scope="session")
def slow_server() -> Iterator[RunningServer]:
    """Steps of 50 ms: a request of a thousand tokens is sure to run while a test looks at it."""
    flags = ("--simulated-step-seconds", "0.05", "--max-num-seqs", "4")
    with RunningServer(*SIMULATED, *flags) as running:
        yield running


@pytest.fixture(scope="session")
def front(
    server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway in front of `server`."""
    path = tmp_path_factory.mktemp("front") / "routing.json"
    with RunningGateway(path, [service([server])]) as running:
        wait_until(lambda: running.num_eligible() == 1)
        yield running


@pytest.fixture
def client(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """OpenAI's client, which does not try again: an error is an error.

    With `BOTH_WAYS` a test is run twice, the second time through a gateway.
    """
    way = request.getfixturevalue("front") if getattr(request, "param", "") == "front" else server
    with openai.OpenAI(base_url=f"{way.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A client with as many connections as a test wants."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits) as made:
        yield made


@pytest.fixture
def stalled_model(tmp_path: Path) -> Path:
    """A model file that nobody ever finishes writing: reading it takes for ever."""
    path = tmp_path / "stalled.gguf"
    os.mkfifo(path)
    return path
