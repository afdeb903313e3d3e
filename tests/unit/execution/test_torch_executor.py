"""The torch executor keeps its contract, on a tiny random model."""

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.errors import CapacityError, ConfigError
from quire_engine.execution.base import AppendedBlocks, Batch, Chunks, Executor, StartedRow
from quire_engine.execution.factory import create_executor
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.models.builders import TinyModel, make_llama

CONFIG = EngineConfig(
    cache=CacheConfig(max_num_blocks=40),
    scheduler=SchedulerConfig(max_num_seqs=4),
    executor=ExecutorConfig(device="cpu", num_threads=1),
)
GREEDY = SamplingParams(max_tokens=100, temperature=0.0)


def silent(_stage: str, _fraction: float) -> None:
    """Hear of progress and say nothing."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def executor(tiny: TinyModel) -> Iterator[Executor]:
    threads = torch.get_num_threads()
    executor = TorchExecutor(CONFIG, tiny.folder)
    executor.load(silent)
    executor.allocate_cache()
    yield executor
    executor.close()
    torch.set_num_threads(threads)


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


def some_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(199) for _ in range(num_tokens)]


def greedy(tiny: TinyModel, tokens: list[int], num_tokens: int) -> list[int]:
    tokens = list(tokens)
    for _ in range(num_tokens):
        tokens.append(int(tiny.logits(tokens)[-1].argmax()))
    return tokens[-num_tokens:]


def test_generates_what_transformers_does(tiny: TinyModel, executor: Executor) -> None:
    prompt = some_tokens(30)
    output = run(executor, (0, 0, 30, True), started=[start(0, prompt, [7, 3])])
    output += run(executor, (0, 30, 1, True))
    output += run(executor, (0, 31, 1, True))
    output += run(executor, (0, 32, 1, True), appended=[AppendedBlocks(0, 2, [5])])
    assert output == greedy(tiny, prompt, 4)


def test_a_chunk_that_does_not_reach_the_end_samples_nothing(executor: Executor) -> None:
    assert run(executor, (1, 0, 9, False), started=[start(1, some_tokens(20), [1, 2])]) == []


def test_decodes_and_chunks_share_a_step(tiny: TinyModel, executor: Executor) -> None:
    prompts = [some_tokens(length, seed) for length, seed in ((5, 1), (40, 2), (21, 3))]
    first = run(
        executor,
        (0, 0, 5, True),
        (1, 0, 30, False),
        started=[start(0, prompts[0], [1]), start(1, prompts[1], [2, 3, 4])],
    )
    mixed = run(
        executor,
        (0, 5, 1, True),
        (1, 30, 10, True),
        (2, 0, 21, True),
        started=[start(2, prompts[2], [9, 8])],
    )
    assert first == greedy(tiny, prompts[0], 1)
    assert mixed[0] == greedy(tiny, prompts[0], 2)[1]
    assert mixed[1:] == [greedy(tiny, prompt, 1)[0] for prompt in prompts[1:]]


def test_a_row_is_started_anew_in_the_step_that_ends_it(
    tiny: TinyModel, executor: Executor
) -> None:
    run(executor, (3, 0, 50, True), started=[start(3, some_tokens(50, 4), [10, 11, 12, 13])])
    prompt = some_tokens(12, 5)
    again = run(executor, (3, 0, 12, True), ended=[3], started=[start(3, prompt, [14])])
    assert again == greedy(tiny, prompt, 1)


def test_a_preempted_row_comes_back_with_its_output(tiny: TinyModel, executor: Executor) -> None:
    prompt = some_tokens(18, 6)
    expected = greedy(tiny, prompt, 3)
    known = prompt + expected[:2]
    back = StartedRow(2, known, [20, 21], GREEDY, len(prompt), 0)
    assert run(executor, (2, 0, 20, True), started=[back]) == expected[2:]


def test_copies_come_before_writes_and_in_order(tiny: TinyModel, executor: Executor) -> None:
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
    assert both == [greedy(tiny, prompt, 2)[1], greedy(tiny, other, 1)[0]]


def test_sampling_depends_on_seed_and_position_alone(executor: Executor) -> None:
    sampling = SamplingParams(max_tokens=9, temperature=1.5, top_k=50, top_p=0.95)
    prompt = some_tokens(10, 8)

    def generate(row: int, seed: int, company: bool) -> list[int]:
        chunks = [(row, 0, 10, True)]
        started = [start(row, prompt, [1 + row], sampling, seed)]
        if company:
            chunks.append((3, 0, 10, True))
            started.append(start(3, some_tokens(10, 9), [9], sampling, 77))
        output = run(executor, *chunks, started=started)[:1]
        for position in range(10, 15):
            decodes = [(row, position, 1, True)]
            if company:
                decodes.append((3, position, 1, True))
            output += run(executor, *decodes)[:1]
        return output

    alone = generate(0, 123, False)
    assert generate(2, 123, True) == alone
    assert generate(0, 124, False) != alone


def test_an_exception_leaves_rows_usable(
    tiny: TinyModel, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = some_tokens(10, 10)
    with monkeypatch.context() as patch:
        patch.setattr("quire_engine.models.decoder.Decoder.logits", None)
        with pytest.raises(TypeError):
            run(executor, (0, 0, 10, True), started=[start(0, prompt, [1])])
    assert run(executor, (0, 0, 10, True)) == greedy(tiny, prompt, 1)


def test_a_step_of_changes_alone_samples_nothing(executor: Executor) -> None:
    assert executor.run(Batch(ended=[0])).token_ids == []


def test_facts(tiny: TinyModel) -> None:
    executor = TorchExecutor(CONFIG, tiny.folder)
    executor.load(silent)
    assert executor.allocate_cache() == ModelFacts(
        max_model_len=256, vocab_size=199, num_blocks=40, block_size=16, embedding_size=64
    )
    executor.close()
    executor.close()
    with pytest.raises(RuntimeError, match="bug: the executor runs before"):
        executor.run(Batch())


BYTES_PER_BLOCK = 3 * 2 * 2 * 16 * 16 * 4
"""Layers, key and value, KV heads, tokens, head size, float32."""


def test_the_cache_is_sized_by_bytes(tiny: TinyModel) -> None:
    cache = CacheConfig(kv_cache_bytes=21 * BYTES_PER_BLOCK + 5)
    executor = TorchExecutor(replace(CONFIG, cache=cache), tiny.folder)
    executor.load(silent)
    assert executor.allocate_cache().num_blocks == 20


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (CacheConfig(max_num_blocks=15), "needs 16 KV blocks .* there are 15: .* to 240.*to 16"),
        (CacheConfig(kv_cache_bytes=100_000), "there are 7: .*kv_cache_bytes to 208896"),
        (CacheConfig(kv_cache_bytes=1), "there are 0: raise kv_cache_bytes to 208896"),
    ],
)
def test_a_cache_for_less_than_one_request_is_refused(
    tiny: TinyModel, cache: CacheConfig, message: str
) -> None:
    executor = TorchExecutor(replace(CONFIG, cache=cache), tiny.folder)
    executor.load(silent)
    with pytest.raises(CapacityError, match=message):
        executor.allocate_cache()


def test_longer_than_the_model_was_made_for_is_refused(tiny: TinyModel) -> None:
    config = replace(CONFIG, model=ModelConfig(max_model_len=257))
    with pytest.raises(ConfigError, match="context length of 256: lower it to that"):
        TorchExecutor(config, tiny.folder).load(silent)


def test_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no model to compute"):
        create_executor(EngineConfig(), None)


def test_simulating_imports_no_torch() -> None:
    script = (
        "import sys\n"
        "from quire_engine.config import EngineConfig, ExecutorConfig\n"
        "from quire_engine.execution.factory import create_executor\n"
        "simulated = ExecutorConfig(simulate='h100', model_shape='llama3-8b')\n"
        "create_executor(EngineConfig(executor=simulated), None)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
