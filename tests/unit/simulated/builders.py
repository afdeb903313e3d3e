"""Batches and executors for tests, as a scheduler would make them."""

from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.execution.base import AppendedBlocks, Batch, Chunks, StartedRow
from quire_engine.execution.clocks import Clock, VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.protocol.sampling import SamplingParams

BLOCK_SIZE = 16


def build_config(
    *,
    gpu: str | None = "h100",
    shape: str | None = "llama3-8b",
    step_seconds: float | None = None,
    max_model_len: int | None = None,
    num_blocks: int | None = None,
    max_num_seqs: int = 16,
) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(max_model_len=max_model_len),
        cache=CacheConfig(block_size=BLOCK_SIZE, max_num_blocks=num_blocks),
        scheduler=SchedulerConfig(max_num_seqs=max_num_seqs),
        executor=ExecutorConfig(
            simulate=gpu, model_shape=shape, simulated_step_seconds=step_seconds
        ),
    )


def build_executor(
    config: EngineConfig | None = None, *, clock: Clock | None = None, check: bool = True
) -> SimulatedExecutor:
    """Loaded, and its cache allocated."""
    executor = SimulatedExecutor(
        config or build_config(), clock=clock or VirtualClock(), check=check
    )
    executor.load(lambda stage, fraction: None)
    executor.allocate_cache()
    return executor


def start(
    row: int,
    token_ids: list[int],
    block_ids: list[int],
    *,
    num_prompt_tokens: int | None = None,
    seed: int | None = None,
) -> StartedRow:
    return StartedRow(
        row=row,
        token_ids=token_ids,
        block_ids=block_ids,
        sampling=SamplingParams(max_tokens=100, seed=seed),
        num_prompt_tokens=num_prompt_tokens or len(token_ids),
        seed=seed or 0,
    )


Chunk = tuple[int, int, int, bool]
"""(row, start, number of tokens, samples)."""


def batch(
    *chunks: Chunk,
    started: list[StartedRow] | None = None,
    appended: list[AppendedBlocks] | None = None,
    copies: list[tuple[int, int]] | None = None,
    ended: list[int] | None = None,
    num_decodes: int = 0,
) -> Batch:
    return Batch(
        started=started or [],
        appended=appended or [],
        copies=copies or [],
        ended=ended or [],
        chunks=Chunks(
            rows=[row for row, *_ in chunks],
            starts=[first for _, first, *_ in chunks],
            num_tokens=[count for *_, count, _ in chunks],
            samples=[samples for *_, samples in chunks],
            num_decodes=num_decodes,
        ),
        total_tokens=sum(count for *_, count, _ in chunks),
    )


def generate_alone(executor: SimulatedExecutor, started: StartedRow, num_tokens: int) -> list[int]:
    """Run one request from its prompt to its end, and end it."""
    position = len(started.token_ids)
    result = executor.run(batch((started.row, 0, position, True), started=[started]))
    token_ids = list(result.token_ids)
    while len(token_ids) < num_tokens:
        decode = batch((started.row, position, 1, True), num_decodes=1)
        token_ids += executor.run(decode).token_ids
        position += 1
    executor.run(batch(ended=[started.row]))
    return token_ids
