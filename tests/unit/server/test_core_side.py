"""What the core does for the server's headers: held room, gateways' counters, prefix chunks."""

import random
from dataclasses import replace
from typing import Any

import pytest

from quire_engine.config import (
    AdmissionConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.core.gateway_counters import MAX_GATEWAYS, GatewayCounters
from quire_engine.core.prefix_chunks import MAX_CHUNKS
from quire_engine.execution.base import Executor, StepResult
from quire_engine.protocol.messages import AddRequest, FinishReason, ModelFacts, Priority
from quire_engine.protocol.sampling import SamplingParams

BLOCK_SIZE = 16
NUM_BLOCKS = 8


class CountingExecutor:
    """Samples 7 for every row that wants a token."""

    step_time = None

    def run(self, batch: Any) -> StepResult:
        return StepResult([7] * sum(batch.chunks.samples))

    def count_graphs(self) -> tuple[int, int]:
        return 3, 1


def make_core(**admission: Any) -> EngineCore:
    """Eight blocks of 16 tokens, and no ceiling below them unless told."""
    limits = {"admission_ceiling": 1.0, "background_ceiling": 1.0} | admission
    config = replace(
        EngineConfig(model=ModelConfig(max_model_len=NUM_BLOCKS * BLOCK_SIZE)),
        scheduler=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=256),
        admission=AdmissionConfig(**limits),
    )
    facts = ModelFacts(
        max_model_len=NUM_BLOCKS * BLOCK_SIZE,
        vocab_size=50_000,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
    )
    executor: Executor = CountingExecutor()  # type: ignore[assignment]  # of its methods, two
    return EngineCore(config, executor, facts, random_source=random.Random(1))


def ask(request_id: str, prompt: range, max_tokens: int = 1, **fields: Any) -> AddRequest:
    return AddRequest(
        client_id="api",
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling=SamplingParams(max_tokens=max_tokens),
        **fields,
    )


def started(core: EngineCore) -> set[str]:
    return {request.request_id for request in core.scheduler.running}


def step_until_idle(core: EngineCore) -> None:
    now = 1.0
    while core.has_work():
        core.step(now)
        core.check_invariants()
        now += 1.0


@pytest.mark.parametrize("holds_room", [False, True])
def test_nobody_starts_past_a_request_that_room_is_held_for(holds_room: bool) -> None:
    core = make_core()
    core.add(ask("first", range(60), 40), 0.0)
    core.step(0.0)
    core.add(ask("big", range(1000, 1100), 2, holds_room=holds_room), 0.1)
    core.add(ask("small", range(2000, 2008), 2), 0.2)
    core.step(0.3)

    assert started(core) == ({"first"} if holds_room else {"first", "small"})
    step_until_idle(core)


def test_room_held_for_a_background_request_does_not_stop_interactive_ones() -> None:
    core = make_core()
    core.add(ask("first", range(60), 40), 0.0)
    core.step(0.0)
    background = {"priority": Priority.BACKGROUND}
    core.add(ask("big", range(1000, 1100), 2, holds_room=True, **background), 0.1)
    core.add(ask("small", range(2000, 2008), 2), 0.2)
    core.add(ask("small background", range(3000, 3008), 2, **background), 0.3)
    core.step(0.4)

    assert started(core) == {"first", "small"}


def test_no_background_request_starts_before_an_interactive_one_that_waits() -> None:
    core = make_core()
    for number in range(20):
        prompt = range(100 * number, 100 * number + 20)
        core.add(ask(f"background {number}", prompt, 4, priority=Priority.BACKGROUND), 0.0)
    core.step(0.0)
    before = started(core)
    for number in range(10):
        core.add(
            ask(f"interactive {number}", range(5000 + 100 * number, 5020 + 100 * number), 4), 0.1
        )
    late = 0
    now, num_ended = 1.0, 0
    while core.has_work():
        waiting = {r.request_id for r in core.scheduler.waiting}
        num_ended += sum(d.finish_reason is not None for _, d in core.step(now))
        newly = started(core) & waiting - before
        if any(name.startswith("background") for name in newly):
            late += 1
            assert not any(r.level is Priority.INTERACTIVE for r in core.scheduler.waiting)
        now += 0.1

    assert late > 0
    assert num_ended == 30  # the flood has its turn after all


def test_a_request_that_came_to_wait_has_no_deadline_but_its_own() -> None:
    core = make_core(slo_time_to_first_token=2.0)
    core.add(ask("plain", range(20), 60), 0.0)
    core.add(ask("waits", range(1000, 1020), holds_room=True), 0.0)
    core.add(ask("own", range(2000, 2020), holds_room=True, deadline_seconds=9.0), 0.0)

    deadlines = {r.request_id: r.deadline for r in core.scheduler.waiting}
    assert deadlines == {"plain": 2.0, "waits": None, "own": 9.0}


def test_the_first_token_says_how_long_the_start_took() -> None:
    core = make_core()
    core.add(ask("a", range(20), 3), 5.0)

    waits = [delta.queue_seconds for now in (7.5, 8.0, 8.5) for _, delta in core.step(now)]
    assert waits == [2.5, None, None]


def test_a_gateways_highest_counter_is_reported_refused_or_not() -> None:
    core = make_core()
    core.add(ask("a", range(100), 20, gateway="g", gateway_counter=7), 0.0)
    core.step(0.0)
    core.step(1.0)
    core.step(2.0)
    refusal = core.add(
        ask("b", range(1000, 1100), 20, gateway="g", gateway_counter=9, starts_now=True), 2.1
    )
    core.add(ask("c", range(20), gateway="h", gateway_counter=3), 2.2)
    core.add(ask("d", range(20), gateway="g", gateway_counter=8), 2.3)
    core.add(ask("e", range(20)), 2.4)

    assert refusal is not None
    assert refusal.finish_reason is FinishReason.REFUSED
    assert core.stats().gateway_counters == {"g": 9, "h": 3}


def test_a_million_gateways_are_not_remembered() -> None:
    counters = GatewayCounters()
    for number in range(1000):
        counters.note(f"g{number}", 1)
        counters.note("steady", number)

    assert len(counters.to_dict()) == MAX_GATEWAYS
    assert counters.to_dict()["steady"] == 999
    assert "g0" not in counters.to_dict()


def test_chunks_are_reported_when_computed_and_when_their_blocks_are_evicted() -> None:
    core = make_core()
    core.add(ask("a", range(64), 2, prefix_chunks=["p0", "p1", "p2", "p3"]), 0.0)
    assert core.prefix_news() is None  # nothing is computed yet
    step_until_idle(core)
    news = core.prefix_news()
    assert news is not None
    assert news.first_number == 0
    assert news.events == [(True, f"p{index}") for index in range(4)]
    assert core.prefix_news() is None

    core.add(ask("b", range(1000, 1090), 2), 1.0)  # six of eight blocks: two chunks must go
    step_until_idle(core)
    news = core.prefix_news()
    assert news is not None
    assert news.first_number == 4
    assert set(news.events) == {(False, "p2"), (False, "p3")}

    core.add(ask("c", range(64), 2, prefix_chunks=["p0", "p1", "p2", "p3"]), 2.0)
    step_until_idle(core)
    news = core.prefix_news()
    assert news is not None
    assert news.events == [(True, "p2"), (True, "p3")]


def test_of_too_many_chunks_those_are_followed_on_that_requests_bring() -> None:
    core = make_core()
    often = [f"s{number}" for number in range(4)]
    for request_id, names in (
        ("a", often),
        ("b", [f"q{number}" for number in range(MAX_CHUNKS)]),
        ("c", often),
    ):
        core.add(ask(request_id, range(64), 2, prefix_chunks=names), 0.0)
        step_until_idle(core)
        core.prefix_news()

    core.add(ask("d", range(64), 2, prefix_chunks=[f"r{n}" for n in range(MAX_CHUNKS)]), 1.0)
    step_until_idle(core)
    news = core.prefix_news()
    assert news is not None
    gone = {name for has_come, name in news.events if not has_come}
    assert len(gone) > MAX_CHUNKS // 4
    assert not gone & set(often)


def test_a_chunk_without_a_full_block_is_never_claimed() -> None:
    core = make_core()
    core.add(ask("a", range(20), 2, prefix_chunks=["tiny", "whole"]), 0.0)
    step_until_idle(core)

    news = core.prefix_news()
    assert news is not None
    assert news.events == [(True, "whole")]


def test_an_aborted_prompt_inserts_nothing() -> None:
    core = make_core()
    core.add(ask("a", range(64), 2, prefix_chunks=["p0", "p1"]), 0.0)
    core.abort(["a"])

    assert core.prefix_news() is None
    assert core.prefix_news() is None


class SeedExecutor(CountingExecutor):
    """Notes the seeds of the rows that start."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def run(self, batch: Any) -> StepResult:
        self.seeds += [row.seed for row in batch.started]
        return super().run(batch)


def seeds_drawn(seed: int | None, source: random.Random) -> list[int]:
    executor = SeedExecutor()
    config = replace(EngineConfig(), executor=ExecutorConfig(seed=seed))
    facts = ModelFacts(max_model_len=128, vocab_size=50_000, num_blocks=99, block_size=BLOCK_SIZE)
    core = EngineCore(config, executor, facts, random_source=source)  # type: ignore[arg-type]
    for name in "abc":
        core.add(ask(name, range(5)), 0.0)
    core.step(0.0)
    return executor.seeds


def test_with_a_seed_requests_without_one_draw_the_same_in_every_run() -> None:
    assert seeds_drawn(7, random.Random(1)) == seeds_drawn(7, random.Random(2))
    assert len(set(seeds_drawn(7, random.Random(1)))) == 3
    assert seeds_drawn(7, random.Random(1)) != seeds_drawn(8, random.Random(1))


def test_without_a_seed_no_two_runs_are_alike() -> None:
    assert seeds_drawn(None, random.Random(1)) != seeds_drawn(None, random.Random(2))
