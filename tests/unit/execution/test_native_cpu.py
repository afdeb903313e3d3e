"""The native executor keeps its contract, on a tiny random model in exact float32."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from quire_engine.execution.base import AppendedBlocks, Batch, StartedRow
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_kernels.cpu import Decoder, unavailable_reason
from tests.unit.execution.native_cases import (
    GREEDY,
    configure,
    generate,
    load,
    run,
    some_tokens,
    start,
)
from tests.unit.models.builders import TinyModel, make_llama

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def executor(tiny: TinyModel) -> Iterator[NativeExecutor]:
    executor = load(tiny.folder, configure())
    yield executor
    executor.close()


def greedy(tiny: TinyModel, tokens: list[int], num_tokens: int) -> list[int]:
    tokens = list(tokens)
    for _ in range(num_tokens):
        tokens.append(int(tiny.logits(tokens)[-1].argmax()))
    return tokens[-num_tokens:]


def test_logits_are_those_of_transformers(
    tiny: TinyModel, executor: NativeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    step = Decoder.step

    def remember(self: Decoder, *arguments: Any) -> torch.Tensor:
        seen.append(step(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(Decoder, "step", remember)
    sampling = SamplingParams(max_tokens=9, temperature=1.0)
    prompt = some_tokens(30)
    run(executor, (0, 0, 30, True), started=[start(0, prompt, [7, 3], sampling)])
    torch.testing.assert_close(seen[0][0], tiny.logits(prompt)[-1], atol=1e-4, rtol=1e-4)


def test_generates_what_transformers_does(tiny: TinyModel, executor: NativeExecutor) -> None:
    prompt = some_tokens(30)
    output = run(executor, (0, 0, 30, True), started=[start(0, prompt, [7, 3])])
    output += run(executor, (0, 30, 1, True))
    output += run(executor, (0, 31, 1, True))
    output += run(executor, (0, 32, 1, True), appended=[AppendedBlocks(0, 2, [5])])
    assert output == greedy(tiny, prompt, 4)


def test_a_chunk_that_does_not_reach_the_end_samples_nothing(executor: NativeExecutor) -> None:
    assert run(executor, (1, 0, 9, False), started=[start(1, some_tokens(20), [1, 2])]) == []


def test_a_prompt_in_chunks_is_the_prompt_at_once(executor: NativeExecutor) -> None:
    prompt = some_tokens(40, 12)
    at_once = generate(executor, prompt, 5)
    run(executor, (1, 0, 13, False), started=[start(1, prompt, [9, 10, 11])])
    run(executor, (1, 13, 1, False))
    output = run(executor, (1, 14, 26, True))
    output += [run(executor, (1, position, 1, True))[0] for position in range(40, 44)]
    assert output == at_once


def test_decodes_and_chunks_share_a_step(tiny: TinyModel, executor: NativeExecutor) -> None:
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


def test_a_preempted_row_comes_back_with_its_output(
    tiny: TinyModel, executor: NativeExecutor
) -> None:
    prompt = some_tokens(18, 6)
    expected = greedy(tiny, prompt, 3)
    known = prompt + expected[:2]
    back = StartedRow(2, known, [20, 21], GREEDY, len(prompt), 0)
    assert run(executor, (2, 0, 20, True), started=[back]) == expected[2:]


def test_copies_come_before_writes_and_in_order(tiny: TinyModel, executor: NativeExecutor) -> None:
    prompt = some_tokens(20, 7)
    run(executor, (0, 0, 20, True), started=[start(0, prompt, [30, 31])])
    other = [*prompt[:18], 5, 6]
    both = run(
        executor,
        (0, 20, 1, True),
        (1, 18, 2, True),
        started=[start(1, other, [30, 33])],
        copies=[(31, 32), (32, 33)],
    )
    assert both == [greedy(tiny, prompt, 2)[1], greedy(tiny, other, 1)[0]]


def test_a_greedy_row_among_random_ones_keeps_its_tokens(executor: NativeExecutor) -> None:
    prompt, company = some_tokens(10, 8), some_tokens(10, 9)
    alone = generate(executor, prompt, 6)
    sampling = SamplingParams(max_tokens=9, temperature=1.5, top_k=50, top_p=0.95)
    started = [start(0, prompt, [1]), start(1, company, [9], sampling, seed=7)]
    together = run(executor, (0, 0, 10, True), (1, 0, 10, True), started=started)[:1]
    for position in range(10, 15):
        together += run(executor, (0, position, 1, True), (1, position, 1, True))[:1]
    assert together == alone


def test_sampling_depends_on_seed_and_position_alone(executor: NativeExecutor) -> None:
    sampling = SamplingParams(max_tokens=9, temperature=1.5, top_k=50, top_p=0.95)
    prompt = some_tokens(10, 8)

    def choose(row: int, seed: int) -> list[int]:
        started = [start(row, prompt, [1 + row], sampling, seed)]
        output = run(executor, (row, 0, 10, True), started=started)
        return output + [run(executor, (row, p, 1, True))[0] for p in range(10, 15)]

    alone = choose(0, 123)
    assert choose(2, 123) == alone
    assert choose(0, 124) != alone


def test_a_step_of_changes_alone_samples_nothing(executor: NativeExecutor) -> None:
    assert executor.run(Batch(ended=[0])).token_ids == []


@pytest.mark.parametrize(
    ("started", "message"),
    [
        (start(0, [5, 199], [1]), "token id 5 to 199 is outside"),
        (start(0, [5, -1], [1]), "token id -1 to 5 is outside"),
        (start(0, [5], [41]), "block 41 to 41 is outside"),
        (start(4, [5], [1]), "row 4 to 4 is outside"),
        (start(0, [5] * 257, [1]), "length of a row 257"),
    ],
)
def test_a_batch_that_would_read_foreign_memory_is_refused(
    executor: NativeExecutor, started: StartedRow, message: str
) -> None:
    with pytest.raises(RuntimeError, match=f"bug: {message}"):
        run(executor, (0, 0, 1, True), started=[started])


def test_a_chunk_beyond_the_model_length_is_refused(executor: NativeExecutor) -> None:
    with pytest.raises(RuntimeError, match="end of a chunk 257"):
        run(executor, (0, 255, 2, True), started=[start(0, some_tokens(20), [1])])


def test_a_failed_step_leaves_rows_usable(
    tiny: TinyModel, executor: NativeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = some_tokens(10, 10)
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "greedy_step", None)
        with pytest.raises(TypeError):
            run(executor, (0, 0, 10, True), started=[start(0, prompt, [1])])
    assert run(executor, (0, 0, 10, True)) == greedy(tiny, prompt, 1)


def test_two_threads_compute_the_same(tiny: TinyModel, executor: NativeExecutor) -> None:
    second = load(tiny.folder, configure(num_threads=2))
    prompt = some_tokens(40, 11)
    assert generate(second, prompt, 20) == generate(executor, prompt, 20)
    second.close()


def test_facts_and_closing(tiny: TinyModel) -> None:
    executor = load(tiny.folder, configure())
    assert executor.allocate_cache() == ModelFacts(
        max_model_len=256, vocab_size=199, num_blocks=40, block_size=16, embedding_size=64
    )
    executor.close()
    executor.close()
    with pytest.raises(RuntimeError, match="bug: the executor runs before"):
        executor.run(Batch())
