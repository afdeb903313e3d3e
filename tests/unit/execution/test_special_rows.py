"""Rules and scores in the CPU's executors: whole generations, next to transformers' own."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from quire_engine.execution.base import Executor, StartedRow, StepResult
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs
from tests.unit.execution.native_cases import configure, load, silent, some_tokens
from tests.unit.grammar.walks import numbered_tokens
from tests.unit.models.builders import TinyModel, make_llama
from tests.unit.simulated.builders import batch

PROMPT = some_tokens(12, 3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return make_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=["torch", "native"])
def executor(request: pytest.FixtureRequest, tiny: TinyModel) -> Iterator[Executor]:
    threads = torch.get_num_threads()
    if request.param == "native":
        made: Executor = load(tiny.folder, configure())
    else:
        made = TorchExecutor(configure(), tiny.folder)
        made.load(silent)
        made.allocate_cache()
    yield made
    made.close()
    torch.set_num_threads(threads)


def begin(
    row: int, tokens: list[int], num_prompt: int, seed: int = 0, **choices: Any
) -> StartedRow:
    sampling = SamplingParams(max_tokens=100, **({"temperature": 0.0} | choices))
    blocks = list(range(1 + 8 * row, 9 + 8 * row))
    return StartedRow(row, tokens, blocks, sampling, num_prompt, seed)


def step(executor: Executor, *chunks: tuple[int, int, int, bool], **changes: Any) -> StepResult:
    num_decodes = sum(count == 1 and samples for _, _, count, samples in chunks)
    return executor.run(batch(*chunks, num_decodes=num_decodes, **changes))


def generate(executor: Executor, count: int, row: int = 0, **choices: Any) -> list[int]:
    started = begin(row, PROMPT, len(PROMPT), **choices)
    output = step(executor, (row, 0, len(PROMPT), True), started=[started]).token_ids
    while len(output) < count:
        output += step(executor, (row, len(PROMPT) + len(output) - 1, 1, True)).token_ids
    return output


def oracle(tiny: TinyModel, count: int, **choices: Any) -> list[int]:
    """Greedy, by transformers' own generation."""
    ids = torch.tensor([PROMPT])
    output = tiny.reference.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
        pad_token_id=0, **choices,
    )  # fmt: skip
    generated: list[int] = output[0, len(PROMPT) :].tolist()
    return generated


def test_a_repetition_penalty_gives_transformers_text(tiny: TinyModel, executor: Executor) -> None:
    expected = oracle(tiny, 20, repetition_penalty=1.8)
    assert generate(executor, 20, repetition_penalty=1.8) == expected
    assert expected != oracle(tiny, 20)


def test_biases_give_transformers_text(tiny: TinyModel, executor: Executor) -> None:
    favoured = oracle(tiny, 1)[0]
    biases = {(favoured,): -100.0, (5,): 3.0}
    expected = oracle(tiny, 10, sequence_bias=biases)
    given = tuple((ids[0], bias) for ids, bias in biases.items())
    assert generate(executor, 10, logit_bias=given) == expected


def test_a_bad_word_is_never_completed(tiny: TinyModel, executor: Executor) -> None:
    plain = oracle(tiny, 10)
    word = (plain[3], plain[4])
    output = generate(executor, 10, bad_words=(word,))
    assert output[:4] == plain[:4]
    assert word not in pairwise(output)


def test_only_allowed_tokens_come(executor: Executor) -> None:
    assert set(generate(executor, 10, allowed_token_ids=(7, 8, 9), temperature=1.0)) <= {7, 8, 9}


def test_stop_tokens_wait_for_the_minimum(tiny: TinyModel, executor: Executor) -> None:
    stops = tuple(dict.fromkeys(oracle(tiny, 6)))
    output = generate(executor, 8, min_tokens=6, stop_token_ids=stops)
    assert not set(output[:6]) & set(stops)


def test_a_resumed_row_keeps_penalties_and_seed(executor: Executor) -> None:
    choices: dict[str, Any] = {
        "temperature": 1.3, "presence_penalty": 1.5, "frequency_penalty": 0.5, "min_p": 0.01,
        "repetition_penalty": 1.2,
    }  # fmt: skip
    whole = generate(executor, 12, seed=5, **choices)
    known = PROMPT + whole[:7]
    back = begin(2, known, len(PROMPT), seed=5, **choices)
    output = step(executor, (2, 0, len(known), True), started=[back]).token_ids
    while len(output) < 5:
        output += step(executor, (2, len(known) + len(output) - 1, 1, True)).token_ids
    assert whole[7:] == output


def test_company_changes_nothing(executor: Executor) -> None:
    alone = generate(executor, 6, temperature=1.0, seed=3, frequency_penalty=1.0)
    rows = [
        begin(0, PROMPT, len(PROMPT), temperature=1.0, seed=3, frequency_penalty=1.0),
        begin(1, PROMPT, len(PROMPT), allowed_token_ids=(1, 2), num_logprobs=3),
        begin(2, PROMPT, len(PROMPT), temperature=0.8, seed=9, logit_bias=((4, 50.0),)),
    ]
    chunks = [(row, 0, len(PROMPT), True) for row in range(3)]
    outputs = [step(executor, *chunks, started=rows).token_ids]
    outputs += [
        step(executor, *((row, position, 1, True) for row in range(3))).token_ids
        for position in range(len(PROMPT), len(PROMPT) + 5)
    ]
    assert [tokens[0] for tokens in outputs] == alone
    assert {tokens[1] for tokens in outputs} <= {1, 2}
    assert outputs[0][2] == 4


def check_score(score: TokenLogprobs | None, token: int, expected: torch.Tensor, top: int) -> None:
    assert score is not None
    assert score.logprob == pytest.approx(float(expected[token]), abs=1e-4)
    assert score.rank == 1 + int((expected > expected[token]).sum())
    best = expected.topk(top)
    assert list(score.top_ids) == best.indices.tolist()
    assert score.top_logprobs == pytest.approx(best.values.tolist(), abs=1e-4)


def test_tokens_are_scored_by_the_models_own_logits(tiny: TinyModel, executor: Executor) -> None:
    """Whatever temperature, penalties and biases make of them."""
    started = [
        begin(0, PROMPT, len(PROMPT), num_logprobs=4, temperature=1.7, logit_bias=((8, 90.0),)),
        begin(1, PROMPT[:5], 5, temperature=0.9),
        begin(2, PROMPT[:9], 9, num_logprobs=0),
    ]
    chunks = [(0, 0, 12, True), (1, 0, 5, True), (2, 0, 9, True)]
    result = step(executor, *chunks, started=started)

    assert result.logprobs is not None
    first, nothing, last = result.logprobs
    assert nothing is None
    assert result.token_ids[0] == 8
    check_score(first, 8, tiny.logits(PROMPT)[-1].log_softmax(-1), 4)
    check_score(last, result.token_ids[2], tiny.logits(PROMPT[:9])[-1].log_softmax(-1), 0)


def test_nothing_is_scored_unasked(executor: Executor) -> None:
    result = step(executor, (0, 0, 12, True), started=[begin(0, PROMPT, 12)])
    assert result.logprobs is None
    assert result.prompt_logprobs is None


def test_a_prompt_is_scored_chunk_by_chunk(tiny: TinyModel, executor: Executor) -> None:
    prompt = some_tokens(100, 11)
    started = [
        begin(0, prompt, 100, num_prompt_logprobs=2),
        begin(1, PROMPT, 12, temperature=0.9, seed=1),
    ]
    alone = step(executor, (1, 0, 12, True), started=started[1:]).token_ids
    results = [
        step(executor, (0, 0, 70, False), started=started[:1]),
        step(executor, (0, 70, 30, True), (1, 0, 12, True), started=started[1:]),
    ]

    expected = tiny.logits(prompt).log_softmax(-1)
    scores = [score for result in results for score in (result.prompt_logprobs or {})[0]]
    assert len(scores) == 99
    for position, score in enumerate(scores):
        check_score(score, prompt[position + 1], expected[position], 2)
    assert results[1].token_ids == [int(expected[-1].argmax()), *alone]
    assert results[1].prompt_logprobs is not None
    assert results[1].prompt_logprobs.keys() == {0}
    after = step(executor, (0, 100, 1, True))
    assert after.prompt_logprobs is None


def test_a_row_that_comes_back_is_not_scored_again(executor: Executor) -> None:
    back = begin(0, PROMPT, 10, num_prompt_logprobs=1)
    result = step(executor, (0, 0, 12, True), started=[back])
    assert result.prompt_logprobs is None


def test_a_row_with_a_grammar_takes_its_best_permitted_tokens_and_others_are_as_alone(
    executor: Executor, tiny: TinyModel
) -> None:
    alone = generate(executor, 3, row=1)
    started = begin(0, PROMPT, len(PROMPT), num_logprobs=1)
    started.grammar = grammar = numbered_tokens(199, "<5>(<7>|<9>|<11>)<3>")
    both = [started, begin(1, PROMPT, len(PROMPT))]
    steps = [step(executor, (0, 0, 12, True), (1, 0, 12, True), started=both)]
    steps += [step(executor, (0, 12 + n, 1, True), (1, 12 + n, 1, True)) for n in range(2)]
    written = [result.token_ids[0] for result in steps]
    second = tiny.logits([*PROMPT, 5])[-1]

    assert written == [5, max((7, 9, 11), key=lambda token: float(second[token])), 3]
    assert grammar.is_finished
    assert [result.token_ids[1] for result in steps] == alone
    assert all(result.not_finite == () for result in steps)
    assert steps[0].logprobs is not None
    check_score(steps[0].logprobs[0], 5, tiny.logits(PROMPT)[-1].log_softmax(-1), 1)


def test_a_row_that_comes_back_goes_on_in_its_grammar(executor: Executor) -> None:
    started = begin(0, PROMPT, len(PROMPT))
    started.grammar = numbered_tokens(199, "<5><7><9>")
    assert step(executor, (0, 0, 12, True), started=[started]).token_ids == [5]
    back = begin(2, [*PROMPT, 5], len(PROMPT))
    back.grammar = started.grammar
    assert step(executor, (2, 0, 13, True), started=[back], ended=[0]).token_ids == [7]
