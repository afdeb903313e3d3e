"""Rules and scores in the CUDA executor: kernels interpreted on a CPU, in float32, no graphs."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from quire_engine.execution.base import Batch, StartedRow, StepResult
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.weights import FileWeights
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs
from tests.unit.execution.cuda_cases import greedy, reference_logits, reference_states
from tests.unit.execution.test_cuda_executor import CONFIG, CPU, SOURCE, batch, silent, some_tokens
from tests.unit.grammar.walks import numbered_tokens

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")

PROMPT = some_tokens(12, 3)


@pytest.fixture(scope="module")
def executor() -> Iterator[CudaExecutor]:
    executor = CudaExecutor(CONFIG, FileWeights(SOURCE), platform=CPU)
    executor.load(silent)
    executor.allocate_cache()
    yield executor
    executor.close()


def begin(
    row: int, tokens: list[int], num_prompt: int, seed: int = 0, **choices: Any
) -> StartedRow:
    sampling = SamplingParams(max_tokens=100, **({"temperature": 0.0} | choices))
    return StartedRow(row, tokens, [1 + 4 * row, 2 + 4 * row], sampling, num_prompt, seed)


def step(executor: CudaExecutor, *chunks: tuple[int, int, int, bool], **changes: Any) -> StepResult:
    made: Batch = batch(*chunks, **changes)
    return executor.run(made)


def generate(executor: CudaExecutor, count: int, row: int = 0, **choices: Any) -> list[int]:
    started = begin(row, PROMPT, len(PROMPT), **choices)
    output = step(executor, (row, 0, len(PROMPT), True), started=[started]).token_ids
    while len(output) < count:
        output += step(executor, (row, len(PROMPT) + len(output) - 1, 1, True)).token_ids
    return output


def test_rules_change_what_is_chosen(executor: CudaExecutor) -> None:
    plain = greedy(SOURCE, PROMPT, 3)
    assert generate(executor, 3) == plain
    assert generate(executor, 3, allowed_token_ids=(7,)) == [7, 7, 7]
    assert generate(executor, 3, logit_bias=((9, 100.0),)) == [9, 9, 9]
    assert generate(executor, 3, bad_words=((plain[0],),))[0] != plain[0]
    assert generate(executor, 1, min_tokens=1, stop_token_ids=(plain[0],)) != plain[:1]


def test_penalties_look_at_what_was_generated(executor: CudaExecutor) -> None:
    once = generate(executor, 6, logit_bias=((9, 50.0), (8, 45.0)), presence_penalty=2.0)
    assert once == [9] * 6
    output = generate(executor, 6, logit_bias=((9, 50.0), (8, 49.0)), frequency_penalty=2.0)
    assert output[:2] == [9, 8] or output[:3] == [9, 9, 8]
    assert {8, 9} == set(output)


def test_a_resumed_row_goes_on_alike(executor: CudaExecutor) -> None:
    choices: dict[str, Any] = {
        "temperature": 1.2,
        "min_p": 0.02,
        "presence_penalty": 1.5,
        "repetition_penalty": 1.3,
    }
    whole = generate(executor, 6, seed=5, **choices)
    known = PROMPT + whole[:3]
    back = begin(2, known, len(PROMPT), seed=5, **choices)
    output = step(executor, (2, 0, len(known), True), started=[back]).token_ids
    while len(output) < 3:
        output += step(executor, (2, len(known) + len(output) - 1, 1, True)).token_ids
    assert output == whole[3:]


def check(score: TokenLogprobs | None, token: int, expected: torch.Tensor) -> None:
    assert score is not None
    assert score.logprob == pytest.approx(float(expected[token]), abs=1e-3)
    assert list(score.top_ids) == expected.topk(len(score.top_ids)).indices.tolist()


def test_tokens_and_prompts_are_scored(executor: CudaExecutor) -> None:
    started = [
        begin(0, PROMPT, 12, num_logprobs=2, num_prompt_logprobs=1, logit_bias=((4, 90.0),)),
        begin(1, PROMPT[:5], 5),
    ]
    first = step(executor, (0, 0, 7, False), (1, 0, 5, True), started=started)
    second = step(executor, (0, 7, 5, True), (1, 5, 1, True))

    expected = reference_logits(SOURCE, PROMPT).log_softmax(-1)
    scores = [s for result in (first, second) for s in (result.prompt_logprobs or {})[0]]
    assert len(scores) == 11
    for position, score in enumerate(scores):
        check(score, PROMPT[position + 1], expected[position])
    assert [first.token_ids[0], second.token_ids[0]] == greedy(SOURCE, PROMPT[:5], 2)
    assert second.logprobs is not None
    nothing, of_bias = second.logprobs
    assert nothing is None
    assert second.token_ids[1] == 4
    check(of_bias, 4, expected[-1])


def test_plain_rows_are_not_scored(executor: CudaExecutor) -> None:
    result = step(executor, (0, 0, 12, True), started=[begin(0, PROMPT, 12)])
    assert (result.logprobs, result.prompt_logprobs) == (None, None)


def test_a_row_with_a_grammar_takes_permitted_tokens_and_others_are_as_alone(
    executor: CudaExecutor,
) -> None:
    started = begin(0, PROMPT, 12)
    started.grammar = grammar = numbered_tokens(199, "<5>(<7>|<9>)<3>")
    both = [started, begin(1, PROMPT, 12)]
    steps = [step(executor, (0, 0, 12, True), (1, 0, 12, True), started=both)]
    steps += [step(executor, (0, 12 + n, 1, True), (1, 12 + n, 1, True)) for n in range(2)]
    second = reference_logits(SOURCE, [*PROMPT, 5])[-1]

    written = [result.token_ids[0] for result in steps]
    assert written == [5, max((7, 9), key=lambda token: float(second[token])), 3]
    assert grammar.is_finished
    assert [result.token_ids[1] for result in steps] == greedy(SOURCE, PROMPT, 3)


def test_embeddings_are_sums_of_states_beside_rows_that_generate(executor: CudaExecutor) -> None:
    prompts = {0: some_tokens(30, 11), 1: some_tokens(17, 12), 2: PROMPT}
    started = [
        begin(0, prompts[0], 30, pooling="mean"),
        begin(1, prompts[1], 17, pooling="last"),
        begin(2, PROMPT, 12),
    ]
    first = step(executor, (0, 0, 20, False), (1, 0, 9, False), (2, 0, 12, True), started=started)
    second = step(executor, (0, 20, 10, True), (1, 9, 8, True), (2, 12, 1, True))

    assert [first.token_ids[0], second.token_ids[0]] == greedy(SOURCE, PROMPT, 2)
    assert first.pooled is not None
    assert second.pooled is not None
    assert sorted(first.pooled) == [0]
    assert sorted(second.pooled) == [0, 1]
    mean = (first.pooled[0] + second.pooled[0]) / 30
    of_mean, of_last = (reference_states(SOURCE, prompts[row]).double() for row in (0, 1))
    torch.testing.assert_close(torch.from_numpy(mean), of_mean.mean(0), rtol=1e-4, atol=1e-4)
    last = torch.from_numpy(second.pooled[1])
    torch.testing.assert_close(last, of_last[-1], rtol=1e-4, atol=1e-4)


def test_an_embedding_that_is_not_finite_is_named(executor: CudaExecutor) -> None:
    state = executor._allocated()
    prompt = some_tokens(30, 13)
    started = [begin(0, prompt, 30, pooling="mean"), begin(1, PROMPT, 12)]
    step(executor, (0, 0, 20, False), started=started)
    state.cache[started[0].block_ids] = float("nan")
    result = step(executor, (0, 20, 10, True), (1, 0, 12, True))
    state.cache[started[0].block_ids] = 0.0
    assert set(result.not_finite) == {0}
    assert result.token_ids[1] == greedy(SOURCE, PROMPT, 1)[0]
