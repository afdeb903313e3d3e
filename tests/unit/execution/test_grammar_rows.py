"""Masks on logits: what may not come is -inf, other rows are untouched, tokens are followed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.execution.base import StartedRow
from quire_engine.execution.grammar_rows import GrammarRows, mask_logits, spread_bits
from quire_engine.execution.special_rows import SpecialRows
from quire_engine.grammar.matching import GrammarState
from quire_engine.protocol.grammar import RegexGrammar
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.grammar.walks import END, VOCABULARY, compile_spec

WIDTH = VOCABULARY.width
PROMPT = [1, 2, 3]
A, B, C = b"abc"


def begin(row: int, pattern: str | None, output: str = "", **choices: int) -> StartedRow:
    state = None
    if pattern is not None:
        state = GrammarState(compile_spec(RegexGrammar(pattern)), [END])
    sampling = SamplingParams(max_tokens=9, **choices)  # type: ignore[arg-type]
    tokens = [*PROMPT, *output.encode()]
    return StartedRow(row, tokens, [1], sampling, len(PROMPT), seed=0, grammar=state)


def pick_best(logits: torch.Tensor) -> list[int]:
    best: list[int] = logits.argmax(-1).tolist()
    return best


def likely(*tokens: int) -> torch.Tensor:
    """A row of logits for each of these most likely tokens."""
    logits = torch.zeros(len(tokens), WIDTH)
    logits[range(len(tokens)), list(tokens)] = 5.0
    return logits


@given(st.lists(st.lists(st.booleans(), min_size=70, max_size=70), min_size=1, max_size=3))
def test_bits_are_spread_alike_on_the_host_and_on_a_device(rows: list[list[bool]]) -> None:
    bits = np.array(rows)
    padded = np.pad(bits, ((0, 0), (0, 26)))
    masks = np.packbits(padded, axis=1, bitorder="little").view(np.int32)
    assert np.array_equal(spread_bits(torch.from_numpy(masks), 70).numpy(), bits)
    logits = torch.zeros(len(rows) + 1, 70)
    mask_logits(logits, range(len(rows)), masks)
    assert np.array_equal((logits == 0).numpy(), np.vstack([bits, np.ones((1, 70), bool)]))


def test_a_row_with_a_grammar_takes_its_best_permitted_token_and_others_their_best() -> None:
    special = SpecialRows()
    special.start(begin(0, "ab"))
    special.start(begin(1, None))
    special.start(begin(2, "[bc]+", "b"))
    chosen = special.choose(likely(C, C, C), [0, 1, 2], [3, 3, 4], pick_best)
    assert chosen.token_ids == [A, C, C]
    assert chosen.impossible == ()


def test_rows_without_a_grammar_are_no_concern() -> None:
    special = SpecialRows()
    special.start(begin(0, None))
    assert not special.concern([0])
    special.start(begin(0, "a"))
    assert special.concern([0])
    special.start(begin(0, None))
    assert not special.concern([0])


def test_a_step_that_is_computed_again_chooses_the_same() -> None:
    special = SpecialRows()
    started = begin(0, "ab?c")
    special.start(started)
    first = [special.choose(likely(B), [0], [3 + n], pick_best).token_ids for n in range(2)]
    again = special.choose(likely(B), [0], [4], pick_best).token_ids
    assert first == [[A], [B]]
    assert again == [B]
    assert started.grammar is not None
    assert special.choose(likely(B), [0], [5], pick_best).token_ids == [C]
    assert started.grammar.is_finished


def test_where_no_permitted_token_has_a_finite_score_none_is_chosen() -> None:
    special = SpecialRows()
    special.start(begin(0, "ab"))
    logits = likely(C)
    logits[0, A] = -torch.inf
    assert special.choose(logits, [0], [3], pick_best).impossible == (0,)


def test_scores_are_those_of_the_model_before_the_mask() -> None:
    special = SpecialRows()
    special.start(begin(0, "ab", num_logprobs=1))
    chosen = special.choose(likely(C), [0], [3], pick_best)
    assert chosen.logprobs is not None
    score = chosen.logprobs[0]
    assert score is not None
    assert score.top_ids == (C,)
    assert score.rank > 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_any_type_of_logits_is_masked(dtype: torch.dtype) -> None:
    rows = GrammarRows()
    rows.start(begin(0, "ab"))
    logits = rows.apply(torch.zeros(1, WIDTH, dtype=dtype), [0], [3])
    assert logits.dtype == torch.float32
    assert logits.isfinite().nonzero().tolist() == [[0, A]]
