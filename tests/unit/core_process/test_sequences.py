"""A request of several sequences in the core: ids, seeds, scores, and one answer to them all."""

import random

import pytest

from quire_engine.core.engine import EngineCore
from quire_engine.errors import RequestError
from quire_engine.execution.base import Batch, StepResult
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.protocol.messages import AddRequest, FinishReason, TokenDelta
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.simulated.builders import build_config

PROMPT = list(b"Tell me of the lighthouse on the rock.")


class WatchedExecutor(SimulatedExecutor):
    """Remembers the seeds that rows started with; every batch is checked."""

    def __init__(self, max_model_len: int = 512, num_blocks: int = 64) -> None:
        config = build_config(step_seconds=0.0, max_model_len=max_model_len, num_blocks=num_blocks)
        super().__init__(config, check=True)
        self.seeds: list[int] = []

    def run(self, batch: Batch) -> StepResult:
        self.seeds += [started.seed for started in batch.started]
        return super().run(batch)


def make_core(executor: WatchedExecutor) -> EngineCore:
    facts = executor.allocate_cache()
    return EngineCore(executor._config, executor, facts, random_source=random.Random(1))


def request(num_sequences: int = 3, **choices: object) -> AddRequest:
    sampling = SamplingParams(**({"max_tokens": 9, "seed": 40} | choices))  # type: ignore[arg-type]
    return AddRequest(
        client_id="api",
        request_id="r",
        prompt_token_ids=PROMPT,
        sampling=sampling,
        num_sequences=num_sequences,
    )


def started(executor: WatchedExecutor) -> EngineCore:
    core = make_core(executor)
    assert core.add(request(), 0.0) is None
    return core


def tokens_of(deltas: list[TokenDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def run(core: EngineCore, until: float = 1e9) -> dict[str, list[TokenDelta]]:
    deltas: dict[str, list[TokenDelta]] = {}
    now = 0.0
    while core.has_work() and now < until:
        now += 1.0
        for _, delta in core.step(now):
            deltas.setdefault(delta.request_id, []).append(delta)
        core.check_invariants()
    return deltas


def test_sequences_have_ids_and_seeds_that_count_up() -> None:
    executor = WatchedExecutor()
    deltas = run(started(executor))

    assert deltas.keys() == {"r", "r.1", "r.2"}
    assert executor.seeds == [40, 41, 42]
    for of_one in deltas.values():
        assert sum(len(delta.token_ids) for delta in of_one) == 9
        assert of_one[-1].finish_reason is FinishReason.LENGTH


def test_one_without_a_seed_gets_three_that_differ() -> None:
    executor = WatchedExecutor()
    core = make_core(executor)
    core.add(request(seed=None), 0.0)
    run(core)
    first, *others = executor.seeds
    assert others == [first + 1, first + 2]


def test_scores_come_with_their_tokens_and_prompts_with_the_first() -> None:
    core = make_core(WatchedExecutor())
    core.add(request(num_logprobs=1, num_prompt_logprobs=0), 0.0)
    for first, *others in run(core).values():
        assert first.prompt_logprobs is not None
        assert len(first.prompt_logprobs) == len(PROMPT) - 1
        assert all(delta.prompt_logprobs is None for delta in others)
        for delta in (first, *others):
            assert delta.logprobs is not None
            assert [score.top_ids[0] for score in delta.logprobs] == delta.token_ids


def test_a_prompt_in_the_cache_is_computed_again_to_be_scored() -> None:
    core = make_core(WatchedExecutor())
    core.add(request(1), 0.0)
    run(core)
    core.add(request(2, num_prompt_logprobs=0), 10.0)
    (first, *_), _ = run(core).values()
    assert first.num_cached_tokens == 0
    assert len(first.prompt_logprobs or []) == len(PROMPT) - 1


@pytest.mark.parametrize("victim", ["r", "r.1"])
def test_a_preempted_sequence_goes_on_where_it_was(victim: str) -> None:
    whole = run(started(WatchedExecutor()))
    executor = WatchedExecutor()
    core = started(executor)
    deltas = run(core, until=5.0)
    core.scheduler.roster.preempt(core.scheduler.roster.by_id[victim])
    for name, later in run(core).items():
        deltas[name] += later

    assert core.stats().num_preemptions == 1
    assert executor.seeds[-1] == {"r": 40, "r.1": 41}[victim]
    assert {n: tokens_of(own) for n, own in deltas.items()} == {
        name: tokens_of(own) for name, own in whole.items()
    }


def test_a_leader_preempted_before_the_others_start_leaves_them_its_cached_blocks() -> None:
    core = started(WatchedExecutor())
    run(core, until=1.0)
    core.scheduler.roster.preempt(core.scheduler.roster.by_id["r"])
    deltas = run(core)
    assert {len(tokens_of(deltas[name])) for name in ("r.1", "r.2")} == {9}


def test_an_id_in_use_refuses_all_of_them() -> None:
    core = make_core(WatchedExecutor())
    core.add(
        AddRequest(
            client_id="a",
            request_id="r.2",
            prompt_token_ids=[1],
            sampling=SamplingParams(max_tokens=1),
        ),
        0.0,
    )
    with pytest.raises(RequestError, match="in use"):
        core.add(request(), 0.0)
    core.check_invariants()
    run(core)
