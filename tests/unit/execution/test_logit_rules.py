"""Rules for logits: as transformers applies them, as a plain reading says, and row by row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.execution.base import StartedRow
from quire_engine.execution.logit_rules import LogitRules
from quire_engine.protocol.sampling import SamplingParams

VOCAB = 12
TOKENS = st.integers(0, VOCAB - 1)
PENALTIES = st.sampled_from([-2.0, -0.3, 0.0, 0.7, 2.0])


def started(row: int, prompt: list[int], output: list[int], **choices: Any) -> StartedRow:
    sampling = SamplingParams(max_tokens=100, **choices)
    return StartedRow(row, prompt + output, [1], sampling, len(prompt), seed=0)


@st.composite
def rows(draw: st.DrawFn, row: int = 0) -> StartedRow:
    biases = draw(st.dictionaries(TOKENS, st.sampled_from([-100.0, -1.5, 4.0, 100.0]), max_size=4))
    return started(
        row,
        draw(st.lists(TOKENS, min_size=1, max_size=8)),
        draw(st.lists(TOKENS, max_size=8)),
        presence_penalty=draw(PENALTIES),
        frequency_penalty=draw(PENALTIES),
        repetition_penalty=draw(st.sampled_from([0.5, 1.0, 1.3])),
        logit_bias=tuple(biases.items()),
        allowed_token_ids=tuple(draw(st.lists(TOKENS, max_size=4))),
        bad_words=tuple(
            tuple(word) for word in draw(st.lists(st.lists(TOKENS, min_size=1, max_size=3)))
        ),
        min_tokens=draw(st.integers(0, 6)),
        stop_token_ids=tuple(draw(st.lists(TOKENS, max_size=3))),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, list[StartedRow]]:
    num_rows = draw(st.integers(1, 5))
    values = st.floats(-20, 20, width=32) | st.just(0.0)
    cells = draw(
        st.lists(values, min_size=num_rows * VOCAB, max_size=num_rows * VOCAB),
    )
    return torch.tensor(cells).view(num_rows, VOCAB), [draw(rows(row)) for row in range(num_rows)]


def apply(logits: torch.Tensor, batch: list[StartedRow]) -> torch.Tensor:
    rules = LogitRules()
    for row in batch:
        rules.start(row)
    numbers = [row.row for row in batch]
    return rules.apply(logits.clone(), numbers, [len(row.token_ids) for row in batch])


def read_plainly(logits: torch.Tensor, row: StartedRow) -> list[float]:
    """Token by token, in float32."""
    sampling, values = row.sampling, [np.float32(value) for value in logits.tolist()]
    output = row.token_ids[row.num_prompt_tokens :]
    for token in range(VOCAB):
        if sampling.allowed_token_ids and token not in sampling.allowed_token_ids:
            values[token] = np.float32(-np.inf)
        for word in sampling.bad_words:
            text = (*output, token)
            if len(text) >= len(word) and text[len(text) - len(word) :] == word:
                values[token] = np.float32(-np.inf)
        if len(output) < sampling.min_tokens and token in sampling.stop_token_ids:
            values[token] = np.float32(-np.inf)
        values[token] += np.float32(dict(sampling.logit_bias).get(token, 0.0))
        factor = np.float32(sampling.repetition_penalty)
        if token in row.token_ids:
            values[token] = values[token] / factor if values[token] > 0 else values[token] * factor
        values[token] -= np.float32(sampling.frequency_penalty * output.count(token))
        values[token] -= np.float32(sampling.presence_penalty * (token in output))
    return [float(value) for value in values]


@settings(deadline=None)
@given(batches())
def test_a_batch_is_changed_as_each_row_reads(batch: tuple[torch.Tensor, list[StartedRow]]) -> None:
    logits, rows_of_batch = batch
    expected = [read_plainly(row, how) for row, how in zip(logits, rows_of_batch, strict=True)]
    torch.testing.assert_close(
        apply(logits, rows_of_batch), torch.tensor(expected), atol=1e-5, rtol=1e-6
    )


@settings(deadline=None)
@given(batches())
def test_a_row_alone_gets_the_very_same(batch: tuple[torch.Tensor, list[StartedRow]]) -> None:
    logits, rows_of_batch = batch
    together = apply(logits, rows_of_batch)
    for index, row in enumerate(rows_of_batch):
        assert torch.equal(apply(logits[index : index + 1], [row])[0], together[index])


@settings(deadline=None)
@given(rows(), st.lists(TOKENS, min_size=1, max_size=6), st.booleans())
def test_tokens_that_were_chosen_count_as_those_a_row_starts_with(
    row: StartedRow, chosen: list[int], is_repeated: bool
) -> None:
    """So a preempted request goes on as if nothing had happened, and a step may run twice."""
    prompt, output = row.token_ids[: row.num_prompt_tokens], row.token_ids[row.num_prompt_tokens :]
    rules, resumed = LogitRules(), LogitRules()
    rules.start(row)
    for position, token in enumerate(chosen, start=len(row.token_ids)):
        if is_repeated:
            rules.append([0], [position], [(token + 1) % VOCAB])
        rules.append([0], [position], [token])
    resumed.start(StartedRow(0, prompt + output + chosen, [1], row.sampling, len(prompt), seed=0))
    logits = torch.linspace(-3, 3, VOCAB)[None]
    end = [len(row.token_ids) + len(chosen)]

    grown = rules.apply(logits.clone(), [0], end)
    assert torch.equal(grown, resumed.apply(logits.clone(), [0], end))


Process = Callable[[list[int], torch.Tensor], torch.Tensor]


def transformers_process(processor: Any) -> Process:
    return lambda tokens, logits: processor(torch.tensor([tokens]), logits)


FROM_TRANSFORMERS: dict[str, tuple[dict[str, Any], Any]] = {
    "repetition penalty": (
        {"repetition_penalty": 1.7},
        transformers.RepetitionPenaltyLogitsProcessor(1.7),
    ),
    "bad words": (
        {"bad_words": ((3,), (1, 4), (9, 2, 7))},
        transformers.NoBadWordsLogitsProcessor([[3], [1, 4], [9, 2, 7]]),
    ),
    "logit bias": (
        {"logit_bias": ((2, 1.25), (7, -30.0))},
        transformers.SequenceBiasLogitsProcessor([[[2], 1.25], [[7], -30.0]]),
    ),
    "minimum of tokens": (
        {"min_tokens": 3, "stop_token_ids": (5, 6)},
        transformers.MinNewTokensLengthLogitsProcessor(1, 3, [5, 6]),
    ),
}


@pytest.mark.parametrize("name", FROM_TRANSFORMERS)
@settings(deadline=None)
@given(output=st.lists(TOKENS, min_size=1, max_size=10), seed=st.integers(0, 99))
def test_as_transformers_does(name: str, output: list[int], seed: int) -> None:
    """With a prompt of one token that is banned nowhere: transformers looks at prompts too."""
    choices, processor = FROM_TRANSFORMERS[name]
    torch.manual_seed(seed)
    logits = torch.randn(1, VOCAB)
    row = started(0, [11], output, **choices)

    expected = transformers_process(processor)(row.token_ids, logits.clone())
    torch.testing.assert_close(apply(logits, [row]), expected)


def test_rows_without_wishes_are_not_kept() -> None:
    rules = LogitRules()
    rules.start(started(0, [1], [], temperature=0.7, top_k=3, top_p=0.5, min_p=0.1))
    assert not rules.concern([0])
    rules.start(started(0, [1], [], presence_penalty=1.0))
    assert rules.concern([0])
    assert not rules.concern([1])
    rules.start(started(0, [1], []))
    assert not rules.concern([0])


def test_the_prompt_matters_to_the_repetition_penalty_alone() -> None:
    logits = torch.ones(1, VOCAB)
    row = started(0, [1, 1], [2, 2], frequency_penalty=0.25, presence_penalty=0.5)
    assert apply(logits, [row])[0, :3].tolist() == [1.0, 1.0, 0.0]
    row = started(0, [1, 1], [2, 2], repetition_penalty=2.0)
    assert apply(logits, [row])[0, :3].tolist() == [1.0, 0.5, 0.5]
