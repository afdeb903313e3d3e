"""Small models and batches for the native executor's tests."""

import random
from pathlib import Path

import torch

from quire_engine.config import CacheConfig, EngineConfig, ExecutorConfig, SchedulerConfig
from quire_engine.config.engine import ModelConfig
from quire_engine.config.kinds import DType
from quire_engine.execution.base import Batch, Chunks, Executor, StartedRow
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.models.loading.weights import open_weights
from quire_engine.protocol.sampling import SamplingParams

GREEDY = SamplingParams(max_tokens=100, temperature=0.0)


def configure(dtype: DType = "float32", num_threads: int = 1) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(dtype=dtype),
        cache=CacheConfig(max_num_blocks=40),
        scheduler=SchedulerConfig(max_num_seqs=4),
        executor=ExecutorConfig(num_threads=num_threads),
    )


def silent(_stage: str, _fraction: float) -> None:
    """Hear of progress and say nothing."""


def load(path: Path, config: EngineConfig) -> NativeExecutor:
    threads = torch.get_num_threads()
    executor = NativeExecutor(config, open_weights(path))
    executor.load(silent)
    executor.allocate_cache()
    torch.set_num_threads(threads)
    return executor


def start(
    row: int, tokens: list[int], blocks: list[int], sampling: SamplingParams = GREEDY, seed: int = 0
) -> StartedRow:
    return StartedRow(row, tokens, blocks, sampling, len(tokens), seed)


def run(executor: Executor, *chunks: tuple[int, int, int, bool], **changes: object) -> list[int]:
    """Run chunks (row, start, number of tokens, whether to sample); decodes are those of one."""
    ordered = sorted(chunks, key=lambda chunk: chunk[2] > 1)
    rows, starts, counts, samples = (list(column) for column in zip(*ordered, strict=True))
    description = Chunks(rows, starts, counts, samples, sum(count == 1 for count in counts))
    batch = Batch(chunks=description, total_tokens=sum(counts), **changes)  # type: ignore[arg-type]
    return executor.run(batch).token_ids


def generate(executor: Executor, prompt: list[int], num_tokens: int, row: int = 0) -> list[int]:
    """Greedy tokens of one request alone; its blocks are those that begin with its row."""
    blocks = list(range(1 + row * 8, 9 + row * 8))
    output = run(executor, (row, 0, len(prompt), True), started=[start(row, prompt, blocks)])
    while len(output) < num_tokens:
        output += run(executor, (row, len(prompt) + len(output) - 1, 1, True))
    return output


def some_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(199) for _ in range(num_tokens)]
