"""While a model is on its way, `GET /state` says how far it is."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import pytest

from quire_engine.protocol.state import EngineState
from tests.api.servers import SIMULATED, RunningServer, wait_for_line, wait_until
from tests.unit.sources.web_server import Answer, WebState, serve_web

_LISTENING = re.compile(r"listening on (https?://[^,]+),")


@dataclass
class HeldHub(WebState):
    """A hub that answers nothing until it is told to."""

    may_answer: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        """Wait, then refuse."""
        self.may_answer.wait(120)
        return Answer(status=404)


@pytest.fixture
def hub() -> Iterator[tuple[HeldHub, str]]:
    state = HeldHub()
    with serve_web(state) as url:
        yield state, url
        state.may_answer.set()


def state_of(url: str) -> EngineState:
    answer = httpx.get(f"{url}/state", timeout=60)
    return msgspec.json.decode(answer.raise_for_status().content, type=EngineState)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_what_is_being_fetched_is_said(
    hub: tuple[HeldHub, str], tmp_path: Path, num_workers: int
) -> None:
    environment = {"HF_ENDPOINT": hub[1], "QUIRE_CACHE": str(tmp_path)}
    flags = ("hf://Org/Repo@main", "--device=cpu", f"--api-workers={num_workers}")
    server = RunningServer(*flags, env=environment)
    try:
        url = wait_for_line(server.process, _LISTENING, server.output)[1]
        wait_until(lambda: state_of(url).loading is not None)
        state = state_of(url)
        assert state.loading is not None
        assert state.loading.phase == "fetching"
        assert state.loading.stage == "looking up Org/Repo@main"
        assert not state.is_ready
    finally:
        server.kill()


def test_nothing_is_said_once_the_model_is_loaded() -> None:
    with RunningServer(*SIMULATED) as server:
        assert server.state().loading is None
