"""A core over the CUDA executor, kernels interpreted on a CPU in float32: steps that overlap."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from quire_engine.config import EngineConfig, ExecutorConfig, SchedulerConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.weights import FileWeights
from quire_engine.execution.recovering import with_retries
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import AddRequest, FinishReason, ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.execution.cuda_cases import greedy
from tests.unit.execution.test_cuda_executor import CONFIG, CPU, SOURCE, silent, some_tokens

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")

Loaded = tuple[CudaExecutor, ModelFacts]


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    executor = CudaExecutor(CONFIG, FileWeights(SOURCE), platform=CPU)
    executor.load(silent)
    yield executor, executor.allocate_cache()
    executor.close()


def ask(name: str, prompt: list[int], max_tokens: int = 6, **choices: Any) -> AddRequest:
    params: dict[str, Any] = {"temperature": 0.0} | choices
    return AddRequest(
        client_id="api",
        request_id=name,
        prompt_token_ids=prompt,
        sampling=SamplingParams(max_tokens=max_tokens, **params),
    )


def make_core(loaded: Loaded, *, overlap: bool = True) -> EngineCore:
    config: EngineConfig = replace(
        CONFIG,
        scheduler=SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=32),
        executor=ExecutorConfig(overlap=overlap),
    )
    return EngineCore(config, *loaded, random_source=random.Random(3))


Answers = dict[str, tuple[list[int], FinishReason | None]]


def finish(core: EngineCore) -> tuple[Answers, int]:
    """Step to the end; returns each request's tokens, and how often two steps were in flight."""
    answers: Answers = {}
    num_behind = 0
    while core.has_work():
        for _, delta in core.step(0.0):
            before, _ = answers.get(delta.request_id, ([], None))
            answers[delta.request_id] = (before + delta.token_ids, delta.finish_reason)
        num_behind += len(core.in_flight)
        core.check_invariants()
    assert core.stats().blocks.held == 0
    return answers, num_behind


def test_steps_that_overlap_bring_the_tokens_of_single_ones(loaded: Loaded) -> None:
    long = some_tokens(40, 4)  # more than a step takes
    second = greedy(SOURCE, some_tokens(9, 2), 3)[2]
    asked = [
        ask("length", some_tokens(20, 1), 4),
        ask("stop", some_tokens(9, 2), 9, stop_token_ids=(second,)),
        ask("drawn", some_tokens(9, 3), 5, temperature=1.3, top_k=40, seed=5),
        ask("chunks", long, 3),
    ]
    runs = []
    for overlap in (True, False):
        core = make_core(loaded, overlap=overlap)
        for request in asked:
            assert core.add(request, 0.0) is None
        runs.append(finish(core))
    (late, num_behind), (stepped, none_behind) = runs
    assert late == stepped
    assert num_behind > 3
    assert none_behind == 0
    assert late["length"] == (greedy(SOURCE, some_tokens(20, 1), 4), FinishReason.LENGTH)
    assert late["stop"][1] is FinishReason.STOP
    assert late["stop"][0][-1] == second


def test_a_row_that_is_left_while_two_steps_have_it_serves_another_at_once(loaded: Loaded) -> None:
    core = make_core(loaded)
    for number in range(3):
        core.add(ask(str(number), some_tokens(6, 30 + number), 7), 0.0)
    core.step(0.0)
    assert len(core.in_flight) == 1
    core.abort(["1"])
    core.add(ask("next", some_tokens(12, 50), 3), 0.0)
    answers, _ = finish(core)
    assert answers["next"][0] == greedy(SOURCE, some_tokens(12, 50), 3)
    assert "1" not in answers
    assert answers["2"][0] == greedy(SOURCE, some_tokens(6, 32), 7)[1:]


def test_rules_and_beams_beside_plain_rows(loaded: Loaded) -> None:
    core = make_core(loaded)
    prompt = some_tokens(10, 60)
    core.add(ask("plain", prompt, 5), 0.0)
    core.add(ask("ruled", prompt, 3, allowed_token_ids=(7,)), 0.0)
    search = ask("beams", some_tokens(6, 61), 3)
    search.beams = BeamParams(width=2)
    core.add(search, 0.0)
    answers, _ = finish(core)
    assert answers["plain"][0] == greedy(SOURCE, prompt, 5)
    assert answers["ruled"][0] == [7, 7, 7]
    assert len(answers["beams"][0]) == 3


def test_a_step_that_is_not_taken_fails_alone(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its culprit ends with an error, and the step before it is taken in as it is."""
    core = make_core(loaded)
    core.add(ask("plain", some_tokens(8, 70), 5), 0.0)
    deltas = core.step(0.0)
    assert len(core.in_flight) == 1
    core.add(ask("culprit", some_tokens(25, 71), 5), 0.0)
    executor = loaded[0]
    submit = executor.submit

    def refuse(batch: Any) -> None:
        if max(batch.chunks.num_tokens, default=0) == 25:
            raise RuntimeError("out of memory")
        submit(batch)

    monkeypatch.setattr(executor, "submit", refuse)
    answers, _ = finish(core)
    assert deltas[0][1].token_ids + answers["plain"][0] == greedy(SOURCE, some_tokens(8, 70), 5)
    assert answers["culprit"] == ([], FinishReason.ERROR)


def test_with_retries_steps_go_one_by_one_and_a_culprit_harms_nobody(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, facts = loaded
    submit, attempts = executor.submit, []

    def refuse(batch: Any) -> None:
        if max(batch.chunks.num_tokens, default=0) == 23:
            attempts.append(len(batch.chunks))
            raise RuntimeError("out of memory")
        submit(batch)

    monkeypatch.setattr(executor, "submit", refuse)
    core = make_core((with_retries(executor, 1), facts))  # type: ignore[arg-type]
    core.add(ask("plain", some_tokens(8, 80), 3), 0.0)
    deltas = core.step(0.0)
    core.add(ask("culprit", some_tokens(23, 81), 3), 0.0)
    answers, num_behind = finish(core)
    assert num_behind == 0
    assert attempts == [2, 2, 1, 1]  # the step and its retry, then the culprit alone
    assert deltas[0][1].token_ids + answers["plain"][0] == greedy(SOURCE, some_tokens(8, 80), 3)
    assert answers["culprit"] == ([], FinishReason.ERROR)
