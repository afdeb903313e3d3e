"""Embeddings through scheduler and executors: transformers' states, however they are cut."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quire_engine.config import CacheConfig, EngineConfig, ExecutorConfig, SchedulerConfig
from quire_engine.config.engine import ModelConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Batch, Executor, Progress, StepResult
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.models.loading.weights import open_weights
from quire_engine.protocol.messages import AddRequest, FinishReason, ModelFacts, TokenDelta
from quire_engine.protocol.sampling import Pooling, SamplingParams
from tests.unit.models.builders import TinyModel, make_llama

CONFIG = EngineConfig(
    model=ModelConfig(dtype="float32", max_model_len=128),
    cache=CacheConfig(max_num_blocks=40),
    scheduler=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64),
    executor=ExecutorConfig(device="cpu", num_threads=1),
)
Loaded = tuple[Executor, ModelFacts]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_llama(tmp_path_factory.mktemp("tiny"))


def open_executor(kind: str, folder: Path) -> Executor:
    if kind == "torch":
        return TorchExecutor(CONFIG, folder)
    return NativeExecutor(CONFIG, open_weights(folder))


@pytest.fixture(scope="module", params=["torch", "native"])
def loaded(request: pytest.FixtureRequest, tiny: TinyModel) -> Iterator[Loaded]:
    threads = torch.get_num_threads()
    executor = open_executor(request.param, tiny.folder)
    executor.load(lambda _stage, _fraction: None)
    yield executor, executor.allocate_cache()
    executor.close()
    torch.set_num_threads(threads)


def states_of(tiny: TinyModel, token_ids: list[int], pooling: Pooling) -> NDArray[np.float64]:
    """What transformers' last hidden states come to."""
    with torch.inference_mode():
        states = tiny.reference.model(torch.tensor([token_ids])).last_hidden_state[0].double()
    chosen: NDArray[np.float64] = (states.mean(0) if pooling == "mean" else states[-1]).numpy()
    return chosen


def some_prompt(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(1000 * seed + length)
    return [rng.randrange(199) for _ in range(length)]


def new_core(loaded: Loaded, **changes: Any) -> EngineCore:
    config = replace(CONFIG, scheduler=replace(CONFIG.scheduler, **changes))
    return EngineCore(config, *loaded, random_source=random.Random(0))


def ask(name: str, prompt: list[int], pooling: Pooling | None, max_tokens: int = 1) -> AddRequest:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, pooling=pooling)
    return AddRequest(client_id="c", request_id=name, prompt_token_ids=prompt, sampling=sampling)


def run(core: EngineCore, requests: list[AddRequest]) -> dict[str, list[TokenDelta]]:
    """Let all in and step until they have ended; the accounts are right at every step."""
    deltas: dict[str, list[TokenDelta]] = {request.request_id: [] for request in requests}
    for request in requests:
        assert core.add(request, 0.0) is None
    while core.has_work():
        for _, delta in core.step(0.0):
            deltas[delta.request_id].append(delta)
        core.check_invariants()
    assert core.stats().blocks.held == 0
    return deltas


def vector_of(deltas: list[TokenDelta]) -> NDArray[np.float32]:
    (delta,) = deltas
    assert (delta.token_ids, delta.finish_reason) == ([], FinishReason.LENGTH)
    assert delta.embedding is not None
    return np.frombuffer(delta.embedding, "<f4")


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("max_num_batched_tokens", [4, 64])
def test_they_are_transformers_states_however_prompts_are_cut(
    loaded: Loaded, tiny: TinyModel, pooling: Pooling, max_num_batched_tokens: int
) -> None:
    prompts = [some_prompt(length) for length in (1, 2, 17, 60, 127)]
    core = new_core(loaded, max_num_batched_tokens=max_num_batched_tokens)
    deltas = run(core, [ask(str(i), prompt, pooling) for i, prompt in enumerate(prompts)])

    for index, prompt in enumerate(prompts):
        expected = states_of(tiny, prompt, pooling)
        np.testing.assert_allclose(vector_of(deltas[str(index)]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_cached_beginning_changes_nothing(
    loaded: Loaded, tiny: TinyModel, pooling: Pooling
) -> None:
    prompt = some_prompt(70)
    core = new_core(loaded)
    run(core, [ask("first", prompt, None)])
    vector = vector_of(run(core, [ask("again", prompt, pooling)])["again"])

    np.testing.assert_allclose(vector, states_of(tiny, prompt, pooling), rtol=1e-4, atol=1e-4)
    assert (core.stats().num_prefix_hits > 0) == (pooling == "last")


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    wishes=st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from(["mean", "last", None])), min_size=1,
        max_size=8,
    ),
    budget=st.sampled_from([4, 16, 64]),
)  # fmt: skip
def test_beside_generations_neither_changes_the_other(
    loaded: Loaded, tiny: TinyModel, wishes: list[tuple[int, Pooling | None]], budget: int
) -> None:
    requests = [
        ask(str(i), some_prompt(length, i), pooling, 1 if pooling else 5)
        for i, (length, pooling) in enumerate(wishes)
    ]
    deltas = run(new_core(loaded, max_num_batched_tokens=budget), requests)

    for request in requests:
        own, pooling = deltas[request.request_id], request.sampling.pooling
        if pooling is None:
            alone = run(new_core(loaded), [request])[request.request_id]
            tokens = [[t for delta in ds for t in delta.token_ids] for ds in (own, alone)]
            assert tokens[0] == tokens[1]
            assert len(tokens[0]) == 5
        else:
            expected = states_of(tiny, request.prompt_token_ids, pooling)
            np.testing.assert_allclose(vector_of(own), expected, rtol=1e-4, atol=1e-4)


class FailingOnce(Executor):
    """Fails at every batch the first time, after it was computed."""

    def __init__(self, inner: Executor, culprit: int) -> None:
        self.inner = inner
        self.culprit = culprit
        """The first token of a prompt whose request always fails."""
        self.rows: set[int] = set()
        self.is_next = True

    def load(self, progress: Progress) -> None:
        self.inner.load(progress)

    def allocate_cache(self) -> ModelFacts:
        return self.inner.allocate_cache()

    def close(self) -> None:
        self.inner.close()

    def run(self, batch: Batch) -> StepResult:
        result = self.inner.run(batch)
        self.rows |= {one.row for one in batch.started if one.token_ids[0] == self.culprit}
        self.is_next = not self.is_next
        if not self.is_next or self.rows & set(batch.chunks.rows):
            raise ValueError("it was not to be")
        return result


def test_a_step_that_runs_again_counts_once_and_a_culprit_fails_alone(
    loaded: Loaded, tiny: TinyModel
) -> None:
    culprit = 198
    executor = FailingOnce(loaded[0], culprit)
    prompts = [[1, *some_prompt(59)], [2, *some_prompt(30)], [culprit, *some_prompt(20)]]
    core = new_core((executor, loaded[1]), max_num_batched_tokens=16)
    names = ("long", "short", "bad")
    requests = [ask(n, p, "mean") for n, p in zip(names, prompts, strict=True)]
    deltas = run(core, requests)

    assert deltas["bad"][-1].finish_reason is FinishReason.ERROR
    came = [name for name in ("long", "short") if deltas[name][-1].embedding is not None]
    for name in came:
        expected = states_of(tiny, prompts[names.index(name)], "mean")
        np.testing.assert_allclose(vector_of(deltas[name]), expected, rtol=1e-4, atol=1e-4)
    assert all(
        deltas[name][-1].finish_reason is FinishReason.ERROR
        for name in ("long", "short")
        if name not in came
    )


def test_a_preempted_one_begins_anew(loaded: Loaded, tiny: TinyModel) -> None:
    """With so few blocks that not all fit, whatever is preempted comes back and is right."""
    executor, facts = loaded
    few = ModelFacts(
        max_model_len=facts.max_model_len,
        vocab_size=facts.vocab_size,
        num_blocks=9,
        block_size=facts.block_size,
        embedding_size=facts.embedding_size,
    )
    core = new_core((executor, few), max_num_batched_tokens=24)
    prompts = [some_prompt(60, seed) for seed in range(4)]
    requests = [ask(str(i), prompt, "mean") for i, prompt in enumerate(prompts)]
    requests += [ask(f"g{i}", some_prompt(8, 9 + i), None, 50) for i in range(2)]
    deltas = run(core, requests)

    for index, prompt in enumerate(prompts):
        expected = states_of(tiny, prompt, "mean")
        np.testing.assert_allclose(vector_of(deltas[str(index)]), expected, rtol=1e-4, atol=1e-4)


def test_states_that_are_not_finite_end_their_request_alone(tiny: TinyModel) -> None:
    from quire_engine.execution.base import Chunks, StartedRow
    from quire_engine.execution.pooling import PooledRows

    rows = PooledRows()
    for row, pooling in ((0, "mean"), (1, "last"), (2, None)):
        sampling = SamplingParams(max_tokens=1, pooling=pooling)  # type: ignore[arg-type]
        rows.start(StartedRow(row, [1, 2], [1], sampling, 2, 0))
    chunks = Chunks([2, 0, 1], [1, 0, 0], [1, 2, 2], [True, True, True], 1)
    states = torch.tensor([[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0], [7.0, 8.0]])
    result = rows.compute(
        chunks,
        rows.find(chunks),
        compute_chunks=lambda some: StepResult([9] * len(some), not_finite=(0,)),
        compute_states=lambda _: states,
    )

    assert result.token_ids == [9, 0, 0]
    assert result.not_finite == (0, 1)
    assert result.pooled is not None
    assert result.pooled[1].tolist() == [7.0, 8.0]
