"""The step loop: inputs before steps, steps only with work, statistics when they are due."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
import zmq

from quire_engine.core.engine import EngineCore
from quire_engine.core.front_desk import FrontDesk
from quire_engine.core.loop import HEARTBEAT_SECONDS, STATS_INTERVAL_SECONDS, StatsTimer, StepLoop
from quire_engine.core.outputs import OutputSockets
from quire_engine.errors import RequestError
from quire_engine.protocol.messages import (
    AbortRequests,
    AddRequest,
    CoreReady,
    CoreView,
    FinishReason,
    Goodbye,
    Hello,
    ModelFacts,
    Shutdown,
    ToCore,
    TokenDelta,
    WatchCore,
)
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.core_process.views import make_view

FACTS = ModelFacts(max_model_len=64, vocab_size=256, num_blocks=8, block_size=16)


class FakeCore:
    """Every request takes so many steps as it wants tokens."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.log: list[str] = []

    def add(self, request: AddRequest, now: float) -> TokenDelta | None:
        if request.request_id in self.left:
            raise RequestError("its id is in use")
        self.log.append(f"add {request.request_id}")
        self.left[request.request_id] = request.sampling.max_tokens
        return None

    def abort(self, request_ids: list[str]) -> None:
        self.log.append(f"abort {' '.join(request_ids)}")
        for request_id in request_ids:
            self.left.pop(request_id, None)

    def abort_client(self, client_id: str) -> None:
        self.log.append(f"abort client {client_id}")

    def has_work(self) -> bool:
        return bool(self.left)

    def step(self, now: float) -> list[tuple[str, TokenDelta]]:
        self.log.append("step")
        self.left = {name: left - 1 for name, left in self.left.items() if left > 1}
        return [("api", TokenDelta(request_id="a", token_ids=[1]))]

    def stats(self) -> str:
        return "stats"

    def profile(self) -> str:
        return "profile"

    def view(self, now: float) -> CoreView:
        self.log.append("view")
        return make_view(now)

    def prefix_news(self) -> None:
        return None

    def check_invariants(self) -> None:
        self.log.append("audit")


class FakeOutputs:
    """Notes what would be sent."""

    is_holding = False

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.known: set[str] = set()

    def connect(self, client_id: str, address: str, *, hears_news: bool = True) -> None:
        self.known.add(client_id)
        self.sent.append(f"connect {client_id} {address}" + ("" if hears_news else " quietly"))

    def disconnect(self, client_id: str) -> None:
        self.known.discard(client_id)
        self.sent.append(f"disconnect {client_id}")

    def knows(self, client_id: str) -> bool:
        return client_id in self.known

    def send_to(self, client_id: str, message: Any) -> None:
        self.sent.append(message)

    def send_to_all(self, message: Any) -> None:
        self.sent.append(message)

    def send_deltas(self, deltas: list[tuple[str, TokenDelta]]) -> None:
        self.sent += deltas

    def flush(self) -> None:
        pass


class ScriptedInputs:
    """Messages turn by turn; time passes as the loop waits, and it shuts down at the end."""

    def __init__(self, *turns: list[ToCore]) -> None:
        self.turns = list(turns)
        self.waits: list[float] = []

    def take(self, wait_seconds: float) -> list[ToCore]:
        self.waits.append(wait_seconds)
        return self.turns.pop(0) if self.turns else [Shutdown()]

    def clock(self) -> float:
        return sum(self.waits)


@pytest.fixture
def run() -> Callable[..., tuple[FakeCore, FakeOutputs, ScriptedInputs]]:
    def run_turns(*turns: list[ToCore]) -> tuple[FakeCore, FakeOutputs, ScriptedInputs]:
        core, outputs, inputs = FakeCore(), FakeOutputs(), ScriptedInputs(*turns)
        StepLoop(
            cast("EngineCore", core), FACTS, inputs, cast("OutputSockets", outputs), inputs.clock
        ).run()
        return core, outputs, inputs

    return run_turns


def add(request_id: str, max_tokens: int) -> AddRequest:
    return AddRequest(
        client_id="api",
        request_id=request_id,
        prompt_token_ids=[1],
        sampling=SamplingParams(max_tokens=max_tokens),
    )


Run = Callable[..., tuple[FakeCore, FakeOutputs, ScriptedInputs]]


def test_inputs_are_taken_before_every_step(run: Run) -> None:
    core, _, _ = run([add("a", 3)], [add("b", 1)], [AbortRequests(request_ids=["a"])])

    assert core.log == ["add a", "step", "add b", "step", "abort a"]


def test_an_idle_loop_waits_and_a_busy_one_does_not(run: Run) -> None:
    _, _, inputs = run([], [add("a", 2)], [], [])

    assert inputs.waits[:2] == [0.0, HEARTBEAT_SECONDS]  # statistics once at the start
    assert inputs.waits[2] == 0.0  # in the middle of work
    assert inputs.waits[3] == pytest.approx(STATS_INTERVAL_SECONDS)  # idle, the news is not told


def test_hello_connects_and_tells_the_facts(run: Run) -> None:
    core, outputs, _ = run([Hello(client_id="api", output_address="ipc://x")])

    # the state comes first: no reader of a ready engine may find that it has no blocks
    assert outputs.sent[:3] == ["connect api ipc://x", core.stats(), core.profile()]
    assert outputs.sent[3] == CoreReady(facts=FACTS)
    assert core.log == ["abort client api"]  # what it asked for in an earlier life


def test_a_request_that_the_core_refuses_ends_with_the_reason(run: Run) -> None:
    _, outputs, _ = run([add("a", 5), add("a", 5)])

    refusal = TokenDelta(
        request_id="a", token_ids=[], finish_reason=FinishReason.ERROR, error="its id is in use"
    )
    assert ("api", refusal) in outputs.sent


def test_statistics_are_due_soon_after_a_change_and_else_as_a_heartbeat() -> None:
    timer = StatsTimer()
    assert timer.seconds_left(now=5.0) == 0.0
    timer.mark_sent(now=5.0)

    assert timer.seconds_left(now=5.0) == HEARTBEAT_SECONDS
    timer.mark_changed()
    assert timer.seconds_left(now=5.0) == pytest.approx(STATS_INTERVAL_SECONDS)
    assert timer.seconds_left(now=5.0 + STATS_INTERVAL_SECONDS) == 0.0


def test_an_engine_that_was_busy_is_audited_once_when_it_is_idle_for_a_second(run: Run) -> None:
    core, _, inputs = run([add("a", 1)], [], [], [], [])

    assert core.log == ["add a", "step", "audit"]
    assert inputs.waits[-1] == HEARTBEAT_SECONDS


def test_a_core_is_viewed_only_while_somebody_watches(run: Run) -> None:
    hello = Hello(client_id="api", output_address="ipc://x")
    watch, leave = (WatchCore(client_id="api", is_on=is_on) for is_on in (True, False))
    core, outputs, _ = run([hello, add("a", 9)], [watch], [], [leave], [], [])

    assert core.log.count("view") == 1
    assert core.log.index("view") > core.log.index("step")
    assert sum(isinstance(message, CoreView) for message in outputs.sent) == 1


def test_an_api_server_that_says_hello_again_no_longer_watches(run: Run) -> None:
    hello = Hello(client_id="api", output_address="ipc://x")
    watch = WatchCore(client_id="api", is_on=True)
    core, _, inputs = run([hello, watch], [hello], [], [])

    assert core.log.count("view") == 1
    assert inputs.waits[-1] == pytest.approx(HEARTBEAT_SECONDS)


def test_an_api_worker_gets_what_its_requests_bring_and_no_news(run: Run) -> None:
    hello = Hello(client_id="api", output_address="ipc://x", hears_news=False)
    _, outputs, _ = run([hello])

    assert outputs.sent[0] == "connect api ipc://x quietly"
    assert CoreReady(facts=FACTS) not in outputs.sent


def test_requests_of_an_api_server_that_is_gone_end_and_none_comes_after_it(run: Run) -> None:
    hello = Hello(client_id="api", output_address="ipc://x")
    core, outputs, _ = run([hello, add("a", 3)], [Goodbye(client_id="api"), add("b", 1), hello])

    assert core.log.count("abort client api") == 2
    assert "add b" not in core.log
    assert outputs.sent.count("connect api ipc://x") == 1
    assert "disconnect api" in outputs.sent


def test_a_request_that_is_taken_in_while_its_api_server_is_parted_with_ends_at_once() -> None:
    class PartingCore(FakeCore):
        def add(self, request: AddRequest, now: float) -> TokenDelta | None:
            desk.forget(request.client_id)  # as the step loop's thread may at any moment
            return super().add(request, now)

    core = PartingCore()
    with zmq.Context[zmq.Socket[bytes]]() as context:
        desk = FrontDesk(cast("EngineCore", core), context, time.monotonic)
        desk.register("api", "inproc://api")
        assert desk.add(add("a", 3))
    assert core.log == ["add a", "abort client api"]
