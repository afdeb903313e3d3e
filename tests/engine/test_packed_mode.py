"""The CPU's default, packed weights, on SmolLM2: close to float32, and the same in any company."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.cpu_quality import read_tokens, score
from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Executor
from quire_engine.execution.factory import create_executor
from quire_engine.execution.native_cpu.choice import CpuExecutor
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.protocol.messages import AddRequest, ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.sources.factory import resolve
from quire_engine.tokenizing.loading import load_tokenizer
from quire_kernels.cpu import Team, unavailable_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(unavailable_reason() is not None, reason="no C++ compiler"),
]

CONFIG = EngineConfig(
    executor=ExecutorConfig(num_threads=1, device="cpu"),
    model=ModelConfig(max_model_len=256),
    cache=CacheConfig(max_num_blocks=200),
    scheduler=SchedulerConfig(max_num_seqs=8),
)
NUM_TOKENS = 16
Loaded = tuple[Executor, ModelFacts]


@pytest.fixture(scope="module")
def model_path() -> Path:
    return resolve(EngineConfig().model.source).path


@pytest.fixture(scope="module")
def loaded(model_path: Path) -> Iterator[Loaded]:
    threads = torch.get_num_threads()
    executor = create_executor(CONFIG, model_path)
    executor.load(lambda _stage, _fraction: None)
    assert isinstance(executor, CpuExecutor)
    assert isinstance(executor.inner, NativeExecutor)
    yield executor, executor.allocate_cache()
    executor.close()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def prompts(model_path: Path) -> list[list[int]]:
    tokens = read_tokens(model_path, 400)
    return [tokens[start : start + length] for start, length in ((0, 70), (0, 90), (200, 33))]


def generate(
    loaded: Loaded, prompts: list[list[int]], config: EngineConfig = CONFIG
) -> tuple[list[list[int]], EngineCore]:
    """Run prompts together in a new engine core, greedily."""
    executor, facts = loaded
    core = EngineCore(config, executor, facts, random_source=random.Random(0))
    outputs: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for request_id, prompt in zip(outputs, prompts, strict=True):
        sampling = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0)
        request = AddRequest(
            client_id="test", request_id=request_id, prompt_token_ids=prompt, sampling=sampling
        )
        core.add(request, now=0.0)
    while core.has_work():
        for _, delta in core.step(now=0.0):
            assert delta.error is None
            outputs[delta.request_id] += delta.token_ids
    return list(outputs.values()), core


@pytest.fixture(scope="module")
def alone(loaded: Loaded, prompts: list[list[int]]) -> list[list[int]]:
    return [generate(loaded, [prompt])[0][0] for prompt in prompts]


def test_perplexity_is_within_a_hundredth_of_float32(model_path: Path) -> None:
    team, tokens = Team(1), read_tokens(model_path, 300)
    exact, exact_perplexity = score(model_path, "float32", tokens, team)
    best, perplexity = score(model_path, "packed", tokens, team)
    assert perplexity == pytest.approx(exact_perplexity, rel=0.01)
    assert float((best == exact).double().mean()) > 0.99


def test_the_capital_of_france_is_paris(model_path: Path, loaded: Loaded) -> None:
    # float32 prefers the right answer's first word by 0.08; with activations of 8 bits the wrong
    # one wins, in llama.cpp too
    tokenizer = load_tokenizer(model_path)
    assert tokenizer.chat_template is not None
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.encode(tokenizer.chat_template.render(question), add_special_tokens=False)
    answer = tokenizer.decode(generate(loaded, [prompt])[0][0])
    assert answer.startswith("The capital of France is Paris.")


@pytest.mark.parametrize("budget", [8, 31, 64])
def test_in_chunks_as_whole(
    loaded: Loaded, prompts: list[list[int]], alone: list[list[int]], budget: int
) -> None:
    scheduler = replace(CONFIG.scheduler, max_num_batched_tokens=budget)
    outputs, _ = generate(loaded, prompts, replace(CONFIG, scheduler=scheduler))
    assert outputs == alone


def test_together_as_alone(
    loaded: Loaded, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    assert generate(loaded, prompts)[0] == alone


def test_prefix_hits(loaded: Loaded, prompts: list[list[int]], alone: list[list[int]]) -> None:
    outputs, core = generate(loaded, [*prompts, prompts[0], prompts[1]])
    assert outputs == [*alone, *alone[:2]]
    again, _ = generate(loaded, prompts)
    assert again == alone
    assert core.stats().num_prefix_queries > 0
