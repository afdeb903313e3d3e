"""The steps of the GPU's comparison with a CPU: the same tokens, however texts are computed.

Kernels are interpreted on a CPU, in float32; what graphs of padded steps would compute is computed.
"""

from collections.abc import Iterator

import pytest
import torch

from benchmarks.gpu.parity_steps import (
    BLOCKS_PER_ROW,
    generate_at_once,
    generate_in_chunks,
    perplexity,
)
from quire_engine.config import CacheConfig, EngineConfig, SchedulerConfig
from quire_engine.execution.cuda.buckets import PromptShape
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.prompt_graphs import PromptGraphs
from quire_engine.execution.cuda.weights import FileWeights
from tests.unit.execution.cuda_cases import RandomSource, greedy, tiny_spec
from tests.unit.execution.test_cuda_executor import CPU, silent, some_tokens

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")

NUM_BLOCKS, CHUNK = 400, 12
CONFIG = EngineConfig(
    cache=CacheConfig(max_num_blocks=NUM_BLOCKS),
    scheduler=SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=512),
)
SOURCE = RandomSource(tiny_spec(context_length=512))
TEXTS = [some_tokens(length, length) for length in (3, 9, 5, CHUNK + 4, 2)]
EXPECTED = [greedy(SOURCE, text, 3) for text in TEXTS]
LAST = NUM_BLOCKS - BLOCKS_PER_ROW * len(TEXTS) + 1


@pytest.fixture
def executor() -> Iterator[CudaExecutor]:
    executor = CudaExecutor(CONFIG, FileWeights(SOURCE), platform=CPU)
    executor.load(silent)
    executor.allocate_cache()
    yield executor
    executor.close()


def test_texts_at_once_and_in_chunks_bring_the_models_tokens(executor: CudaExecutor) -> None:
    assert generate_at_once(executor, TEXTS, first=LAST, num_output=3)[0] == EXPECTED
    tokens, num_with_prompts = generate_in_chunks(
        executor, TEXTS, first=LAST, num_output=3, most=CHUNK
    )
    assert tokens == EXPECTED
    # four texts begin, the last one's chunk is too long for one step and a fifth begins
    assert num_with_prompts == 2
    used = executor._allocated().cache.flatten(1).abs().sum(1).nonzero().flatten()
    assert {*used.tolist()} - {0} <= {*range(LAST, NUM_BLOCKS + 1)}


def test_steps_of_chunks_bring_the_same_tokens_when_they_are_padded(
    monkeypatch: pytest.MonkeyPatch, executor: CudaExecutor
) -> None:
    asked = []

    def find(_self: PromptGraphs, *sizes: int, truncates: bool) -> PromptShape | None:
        asked.append(sizes)
        return executor._allocated().prompt_graphs.shapes.find(*sizes)

    def compute(_self: PromptGraphs, _shape: PromptShape, step: StepTensors) -> None:
        executor._allocated().program.compute(step)

    monkeypatch.setattr(PromptGraphs, "find", find)
    monkeypatch.setattr(PromptGraphs, "run", compute)
    tokens, num_with_prompts = generate_in_chunks(
        executor, TEXTS, first=LAST, num_output=3, most=CHUNK
    )
    assert tokens == EXPECTED
    assert len(asked) == num_with_prompts


def test_perplexity_does_not_depend_on_the_blocks(executor: CudaExecutor) -> None:
    assert perplexity(executor, TEXTS) == perplexity(executor, TEXTS, first=LAST)
