"""Steps with prompts padded to a graph's shape bring the tokens of steps that are not.

Kernels are interpreted on a CPU, in float32: there are no graphs, but what they would compute.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from quire_engine.config import ExecutorConfig
from quire_engine.execution.cuda.buckets import PromptShape
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.prompt_graphs import PromptGraphs
from quire_engine.execution.cuda.weights import FileWeights
from tests.unit.execution.cuda_cases import RandomSource, greedy, tiny_spec
from tests.unit.execution.test_cuda_executor import (
    CONFIG,
    CPU,
    batch,
    run,
    silent,
    some_tokens,
    start,
)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")

SOURCE = RandomSource(tiny_spec(), has_head_norms=True)


@pytest.mark.parametrize("is_fixed", [False, True])
def test_padded_steps_bring_the_tokens_of_others(
    monkeypatch: pytest.MonkeyPatch, is_fixed: bool
) -> None:
    shapes: list[PromptShape] = []

    def find(_self: PromptGraphs, tokens: int, decodes: int, prompts: int, **_: Any) -> PromptShape:
        shapes.append(PromptShape(num_tokens=24, num_decodes=4))
        assert (tokens, decodes + prompts) <= (24, 6)
        return shapes[-1]

    def compute(_self: PromptGraphs, shape: PromptShape, step: StepTensors) -> None:
        assert len(step.token_rows) == shape.num_tokens
        executor._allocated().program.compute(step)

    monkeypatch.setattr(PromptGraphs, "find", find)
    monkeypatch.setattr(PromptGraphs, "run", compute)
    config = replace(CONFIG, executor=ExecutorConfig(batch_invariant=is_fixed))
    executor = CudaExecutor(config, FileWeights(SOURCE), platform=CPU)
    executor.load(silent)
    executor.allocate_cache()
    prompts = [some_tokens(length, length) for length in (15, 9, 20)]

    first = run(executor, (0, 0, 15, True), started=[start(0, prompts[0], [7, 8])])
    mixed = run(executor, (0, 15, 1, True), (1, 0, 9, True), started=[start(1, prompts[1], [3])])
    chunk = run(
        executor,
        (0, 16, 1, True),
        (1, 9, 1, True),
        (2, 0, 12, False),
        started=[start(2, prompts[2], [4, 5])],
    )
    last = run(executor, (0, 17, 1, True), (2, 12, 8, True))

    assert len(shapes) == 4
    assert [*first, mixed[0], chunk[0], last[0]] == greedy(SOURCE, prompts[0], 4)
    assert [mixed[1], chunk[1]] == greedy(SOURCE, prompts[1], 2)
    assert last[1:] == greedy(SOURCE, prompts[2], 1)
    executor.close()


def test_a_step_of_padding_alone_leaves_rows_as_they_are() -> None:
    executor = CudaExecutor(CONFIG, FileWeights(SOURCE), platform=CPU)
    executor.load(silent)
    executor.allocate_cache()
    prompt = some_tokens(12, 4)
    output = run(executor, (2, 0, 12, True), started=[start(2, prompt, [9])])
    state = executor._allocated()
    state.prompt_graphs._pad(PromptShape(num_tokens=8, num_decodes=4), False)()
    executor.submit(batch((2, 12, 1, True)))
    output += executor.collect().token_ids
    assert output == greedy(SOURCE, prompt, 2)
    executor.close()
