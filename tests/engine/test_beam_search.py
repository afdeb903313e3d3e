"""Beam search over shared blocks finds what transformers finds, whatever computes."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Executor
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.models.loading.weights import open_weights
from quire_engine.protocol.beams import BeamParams, EarlyStopping
from quire_engine.protocol.messages import AddRequest, FinishReason, ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_kernels.cpu import unavailable_reason
from tests.engine.beam_oracle import Found, ask, search_with_core, search_with_transformers
from tests.unit.core_process.poison import Harm, PoisonedExecutor
from tests.unit.models.builders import TinyModel, make_llama

CONFIG = EngineConfig(
    executor=ExecutorConfig(device="cpu", num_threads=1),
    model=ModelConfig(dtype="float32", max_model_len=200),
    cache=CacheConfig(max_num_blocks=120, block_size=16),
    scheduler=SchedulerConfig(max_num_seqs=16),
)
STOPS = (2, 17, 40)
Loaded = tuple[Executor, ModelFacts]


def torch_executor(folder: Path) -> Executor:
    return TorchExecutor(CONFIG, folder)


def native_executor(folder: Path) -> Executor:
    if reason := unavailable_reason():
        pytest.skip(f"no C++ kernels here: {reason}")
    return NativeExecutor(CONFIG, open_weights(folder))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module", params=[torch_executor, native_executor])
def loaded(request: pytest.FixtureRequest, model: TinyModel) -> Iterator[Loaded]:
    make: Callable[[Path], Executor] = request.param
    executor = make(model.folder)
    executor.load(lambda _stage, _fraction: None)
    yield executor, executor.allocate_cache()
    executor.close()


def new_core(loaded: Loaded) -> EngineCore:
    executor, facts = loaded
    return EngineCore(CONFIG, executor, facts, random_source=random.Random(0))


def some_prompt(number: int) -> list[int]:
    rng = random.Random(number)
    return [rng.randrange(3, 199) for _ in range(rng.choice([1, 5, 16, 33, 70]))]


def assert_equal(found: list[Found], expected: list[Found]) -> None:
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    scores = [one.score for one in found]
    assert scores == pytest.approx([one.score for one in expected], rel=1e-5, abs=1e-3)


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty"),
    [(False, 1.0), (False, -1.0), (True, 1.0), (True, 0.0), ("never", 2.0), ("never", 0.0)],
)
def test_it_is_transformers(
    model: TinyModel, loaded: Loaded, early_stopping: EarlyStopping, length_penalty: float
) -> None:
    params = BeamParams(width=4, early_stopping=early_stopping, length_penalty=length_penalty)
    prompts = {f"p{number}": some_prompt(number) for number in range(4)}
    requests = [ask(params, name, prompt, 16, STOPS) for name, prompt in prompts.items()]
    core = new_core(loaded)
    found = search_with_core(core, requests)

    for name, prompt in prompts.items():
        expected = search_with_transformers(
            model.reference, prompt, params, max_tokens=16, stop_token_ids=STOPS
        )
        assert_equal(found[name], expected)
    assert core.stats().blocks.held == 0


@pytest.mark.parametrize(("width", "max_tokens"), [(2, 1), (3, 2), (8, 24), (16, 6)])
def test_of_any_width_and_length(
    model: TinyModel, loaded: Loaded, width: int, max_tokens: int
) -> None:
    params, prompt = BeamParams(width=width), some_prompt(width)
    found = search_with_core(new_core(loaded), [ask(params, "p", prompt, max_tokens, STOPS)])
    expected = search_with_transformers(
        model.reference, prompt, params, max_tokens=max_tokens, stop_token_ids=STOPS
    )
    assert_equal(found["p"], expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")
def test_on_a_gpus_kernels_interpreted(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = make_llama(tmp_path, num_hidden_layers=1, **sizes)
    cpu = Platform(torch.device("cpu"), torch.float32)
    executor = CudaExecutor(CONFIG, model.folder, platform=cpu)
    executor.load(lambda _stage, _fraction: None)
    core = new_core((executor, executor.allocate_cache()))
    params, prompt = BeamParams(width=3), some_prompt(3)
    found = search_with_core(core, [ask(params, "p", prompt, 6, STOPS)])
    expected = search_with_transformers(
        model.reference, prompt, params, max_tokens=6, stop_token_ids=STOPS
    )
    executor.close()
    assert_equal(found["p"], expected)


CULPRIT = 190


@pytest.mark.parametrize("harm", list(Harm))
def test_a_culprit_beside_a_search_fails_alone(loaded: Loaded, harm: Harm) -> None:
    """The step is computed again in halves, and beams that were to copy a block still do."""
    params, prompt = BeamParams(width=4), some_prompt(3)
    wanted = ask(params, "p", prompt, 12, STOPS)
    alone = search_with_core(new_core(loaded), [wanted])["p"]
    executor, facts = loaded
    core = new_core((PoisonedExecutor(executor, {CULPRIT: (harm, 8)}), facts))
    culprit = AddRequest(
        client_id="test",
        request_id="culprit",
        prompt_token_ids=[CULPRIT, 5, 6],
        sampling=SamplingParams(max_tokens=12, temperature=0.0),
    )
    core.add(culprit, 0.0)
    core.add(wanted, 0.0)
    tokens: dict[str, list[int]] = {}
    failed = set()
    while core.has_work():
        for _, delta in core.step(1.0):
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
            if delta.finish_reason is FinishReason.ERROR:
                failed.add(delta.request_id)
        core.check_invariants()
    assert failed == {"culprit"}
    answers = [tokens["p"], *(tokens[f"p.{place}"] for place in range(1, 4))]
    assert answers == [one.token_ids for one in alone]


def test_a_search_that_fails_tells_all_its_answers(loaded: Loaded) -> None:
    executor, facts = loaded
    core = new_core((PoisonedExecutor(executor, {CULPRIT: (Harm.RAISE, 6)}), facts))
    core.add(ask(BeamParams(width=3), "p", [CULPRIT, 5, 6], 12, STOPS), 0.0)
    failed = []
    while core.has_work():
        failed += [d.request_id for _, d in core.step(1.0) if d.finish_reason is not None]
        core.check_invariants()
    assert failed == ["p", "p.1", "p.2"]
    assert core.stats().blocks.held == core.stats().blocks.cached == 0
