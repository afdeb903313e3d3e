"""The CUDA executor keeps its contract: kernels interpreted on a CPU, in float32, no graphs."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quire_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from quire_engine.errors import ConfigError, ModelError
from quire_engine.execution.base import AppendedBlocks, Batch, Chunks, StartedRow
from quire_engine.execution.cuda.executor import (
    AS_GIVEN,
    CudaExecutor,
    chunk_arrays,
    copy_rounds,
    longest_first,
)
from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.cuda.weights import FileWeights
from quire_engine.execution.factory import create_executor
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.execution.cuda_cases import RandomSource, greedy, tiny_spec

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")

CPU = Platform(torch.device("cpu"), torch.float32)
CONFIG = EngineConfig(
    cache=CacheConfig(max_num_blocks=40),
    scheduler=SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=128),
)
GREEDY = SamplingParams(max_tokens=100, temperature=0.0)
SOURCE = RandomSource(tiny_spec(), has_head_norms=True)


def silent(_stage: str, _fraction: float) -> None:
    """Hear of progress and say nothing."""


@pytest.fixture(scope="module")
def executor() -> Iterator[CudaExecutor]:
    executor = CudaExecutor(CONFIG, FileWeights(SOURCE), platform=CPU)
    executor.load(silent)
    assert executor.allocate_cache() == ModelFacts(
        max_model_len=256, vocab_size=199, num_blocks=40, block_size=16, embedding_size=96
    )
    yield executor
    executor.close()


def start(
    row: int, tokens: list[int], blocks: list[int], sampling: SamplingParams = GREEDY, seed: int = 0
) -> StartedRow:
    return StartedRow(row, tokens, blocks, sampling, len(tokens), seed)


def batch(*chunks: tuple[int, int, int, bool], **changes: object) -> Batch:
    """Chunks (row, start, number of tokens, whether to sample); decodes are those of one."""
    ordered = sorted(chunks, key=lambda chunk: chunk[2] > 1)
    rows, starts, counts, samples = (list(column) for column in zip(*ordered, strict=True))
    description = Chunks(rows, starts, counts, samples, sum(count == 1 for count in counts))
    return Batch(chunks=description, total_tokens=sum(counts), **changes)  # type: ignore[arg-type]


def run(
    executor: CudaExecutor, *chunks: tuple[int, int, int, bool], **changes: object
) -> list[int]:
    return executor.run(batch(*chunks, **changes)).token_ids


def some_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(199) for _ in range(num_tokens)]


def test_generates_what_plain_attention_does(executor: CudaExecutor) -> None:
    prompt = some_tokens(15)
    output = run(executor, (0, 0, 15, True), started=[start(0, prompt, [7])])
    output += run(executor, (0, 15, 1, True))
    output += run(executor, (0, 16, 1, True), appended=[AppendedBlocks(0, 1, [5])])
    assert output == greedy(SOURCE, prompt, 3)


def test_a_step_is_submitted_before_the_last_ones_tokens_are_collected(
    executor: CudaExecutor,
) -> None:
    prompt = some_tokens(4, 20)
    executor.submit(batch((0, 0, 4, True), started=[start(0, prompt, [1])]))
    executor.submit(batch((0, 4, 1, True)))
    with pytest.raises(RuntimeError, match="2 steps are in flight"):
        executor.submit(batch((0, 5, 1, True)))
    output = executor.collect().token_ids
    executor.submit(batch((0, 5, 1, True)))
    output += executor.collect().token_ids + executor.collect().token_ids
    assert output == greedy(SOURCE, prompt, 3)


def test_a_chunk_that_does_not_reach_the_end_samples_nothing(executor: CudaExecutor) -> None:
    prompt = some_tokens(20, 21)
    assert run(executor, (1, 0, 9, False), started=[start(1, prompt, [1, 2])]) == []
    # the last prompt token alone comes as a decode: its token is given, not sampled
    assert run(executor, (1, 9, 10, False)) == []
    assert run(executor, (1, 19, 1, True)) == greedy(SOURCE, prompt, 1)


def test_decodes_and_chunks_share_a_step(executor: CudaExecutor) -> None:
    prompts = [some_tokens(length, seed) for length, seed in ((3, 1), (15, 2), (2, 3))]
    first = run(
        executor,
        (0, 0, 3, True),
        (1, 0, 12, False),
        started=[start(0, prompts[0], [1]), start(1, prompts[1], [2, 3])],
    )
    mixed = run(
        executor,
        (0, 3, 1, True),
        (1, 12, 3, True),
        (2, 0, 2, True),
        started=[start(2, prompts[2], [9])],
    )
    assert first == greedy(SOURCE, prompts[0], 1)
    assert mixed[0] == greedy(SOURCE, prompts[0], 2)[1]
    assert mixed[1:] == [greedy(SOURCE, prompt, 1)[0] for prompt in prompts[1:]]


def test_a_row_is_started_anew_in_the_step_that_ends_it(executor: CudaExecutor) -> None:
    run(executor, (3, 0, 9, True), started=[start(3, some_tokens(9, 4), [10])])
    prompt = some_tokens(7, 5)
    again = run(executor, (3, 0, 7, True), ended=[3], started=[start(3, prompt, [14])])
    assert again == greedy(SOURCE, prompt, 1)


def test_copies_come_before_writes_and_in_order(executor: CudaExecutor) -> None:
    prompt = some_tokens(20, 7)
    run(executor, (0, 0, 20, True), started=[start(0, prompt, [30, 31])])
    other = [*prompt[:18], 5, 6]
    started = [start(1, other, [30, 33])]
    both = run(
        executor,
        (0, 20, 1, True),
        (1, 18, 2, True),
        started=started,
        copies=[(31, 32), (32, 33)],
    )
    assert both == [greedy(SOURCE, prompt, 2)[1], greedy(SOURCE, other, 1)[0]]


def test_sampling_depends_on_seed_and_position_alone(executor: CudaExecutor) -> None:
    sampling = SamplingParams(max_tokens=9, temperature=1.5, top_k=50, top_p=0.95)
    prompt = some_tokens(3, 8)

    def generate(row: int, seed: int, company: bool) -> list[int]:
        chunks = [(row, 0, 3, True)]
        started = [start(row, prompt, [1 + row], sampling, seed)]
        if company:
            chunks.append((3, 0, 2, True))
            started.append(start(3, some_tokens(2, 9), [9], sampling, 77))
        output = run(executor, *chunks, started=started)[:1]
        for position in (3,):
            decodes = [(row, position, 1, True)]
            if company:
                decodes.append((3, position - 1, 1, True))
            output += run(executor, *decodes)[:1]
        return output

    alone = generate(0, 123, False)
    assert generate(2, 123, True) == alone
    assert generate(0, 124, False) != alone


def test_an_exception_leaves_rows_usable(
    executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = some_tokens(4, 10)
    with monkeypatch.context() as patch:
        patch.setattr("quire_engine.execution.cuda.model.CudaDecoder.logits", None)
        with pytest.raises(TypeError):
            run(executor, (0, 0, 4, True), started=[start(0, prompt, [1])])
    assert run(executor, (0, 0, 4, True)) == greedy(SOURCE, prompt, 1)


def test_more_changes_than_travel_with_a_step_are_copied_apart(
    executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire_engine.execution.cuda.inputs.InputBuffers.room", lambda _: 0)
    prompt = some_tokens(20, 22)
    output = run(executor, (0, 0, 20, True), started=[start(0, prompt, [4, 6])])
    assert output == greedy(SOURCE, prompt, 1)


def test_a_step_of_changes_alone_samples_nothing(executor: CudaExecutor) -> None:
    assert executor.run(Batch(ended=[0])).token_ids == []


@pytest.mark.parametrize(
    ("copies", "rounds"),
    [
        ([], []),
        ([(1, 2), (1, 3)], [[(1, 2), (1, 3)]]),
        ([(1, 2), (2, 3)], [[(1, 2)], [(2, 3)]]),
        ([(1, 2), (3, 1)], [[(1, 2)], [(3, 1)]]),
        ([(1, 2), (3, 2), (2, 4), (5, 6)], [[(1, 2)], [(3, 2)], [(2, 4), (5, 6)]]),
    ],
)
def test_copies_that_depend_on_each_other_are_apart(
    copies: list[tuple[int, int]], rounds: list[list[tuple[int, int]]]
) -> None:
    assert copy_rounds(copies) == rounds


def test_a_head_size_without_kernel_is_refused() -> None:
    source = RandomSource(tiny_spec(head_dim=48))
    with pytest.raises(ModelError, match="head size 48 has no GPU kernel; supported are 64, 80"):
        CudaExecutor(CONFIG, FileWeights(source), platform=CPU).load(silent)


def test_without_a_gpu_device_cuda_is_refused() -> None:
    config = EngineConfig(model=ModelConfig(dtype="bfloat16"))
    with pytest.raises(ConfigError, match=r"finds no CUDA GPU here \(\w.+\): use --device cpu"):
        CudaExecutor(config, Path())
    assert type(create_executor(EngineConfig(), Path())) is not CudaExecutor


def test_decodes_are_computed_longest_first_and_told_as_they_came() -> None:
    chunks = Chunks([4, 7, 2, 9], [3, 90, 90, 0], [1, 1, 1, 5], [True] * 4, num_decodes=3)
    order = longest_first(chunks)
    assert order.tolist() == [1, 2, 0]
    arrays = chunk_arrays(chunks, order)
    assert arrays.rows.tolist() == [7, 2, 4, 9]
    assert arrays.starts.tolist() == [90, 90, 3, 0]
    assert chunk_arrays(chunks, AS_GIVEN).rows.tolist() == chunks.rows
    assert longest_first(Chunks()).size == 0
