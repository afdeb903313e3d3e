"""The sampler: what may be chosen, how often, and that a row's neighbours don't matter."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quire_engine.execution.randomness import draw_uniforms
from quire_engine.execution.sampler import SamplingTensors, sample

ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)
LOGITS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(2, 12)), elements=ANY_FLOAT
)
UNIFORMS = st.floats(0, 1, exclude_max=True)


def choices(
    num_rows: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    uniforms: list[float] | None = None,
) -> SamplingTensors:
    return SamplingTensors(
        temperature=torch.full((num_rows,), temperature),
        top_k=torch.full((num_rows,), top_k),
        top_p=torch.full((num_rows,), top_p),
        min_p=torch.full((num_rows,), min_p),
        uniforms=torch.tensor(uniforms or [0.5] * num_rows, dtype=torch.float64),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[torch.Tensor, SamplingTensors]:
    logits = torch.from_numpy(draw(LOGITS))
    num_rows, vocab = logits.shape

    def column(values: st.SearchStrategy[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([draw(values) for _ in range(num_rows)], dtype=dtype)

    temperatures = st.sampled_from([0.0, 1e-5, 0.5, 1.0, 100.0])
    return logits, SamplingTensors(
        temperature=column(temperatures, torch.float32),
        top_k=column(st.integers(0, vocab + 2), torch.int64),
        top_p=column(st.sampled_from([1e-6, 0.3, 0.9, 1.0]), torch.float32),
        min_p=column(st.sampled_from([0.0, 1e-6, 0.2, 1.0]), torch.float32),
        uniforms=column(UNIFORMS, torch.float64),
    )


@settings(deadline=None)
@given(batches())
def test_every_row_gets_a_token_of_the_vocabulary(
    batch: tuple[torch.Tensor, SamplingTensors],
) -> None:
    logits, how = batch
    tokens = sample(logits, how)
    assert tokens.shape == (logits.shape[0],)
    assert ((tokens >= 0) & (tokens < logits.shape[1])).all()


@settings(deadline=None)
@given(batches())
def test_a_row_alone_gets_what_it_gets_in_a_batch(
    batch: tuple[torch.Tensor, SamplingTensors],
) -> None:
    logits, how = batch
    together = sample(logits, how)
    for row in range(len(together)):
        only = torch.tensor([row])
        assert sample(logits[only], how.select(only)) == together[row]


@settings(deadline=None)
@given(batches())
def test_what_is_no_number_is_chosen_only_if_there_is_nothing_else(
    batch: tuple[torch.Tensor, SamplingTensors],
) -> None:
    logits, how = batch
    for row, token in zip(logits, sample(logits, how).tolist(), strict=True):
        if (row > -1e30).any():
            assert not row[token].isnan()


def kept(logits: torch.Tensor, top_k: int, top_p: float) -> set[int]:
    """Tokens that top_k, then top_p keep, told token by token; equals at the border all stay."""
    ordered = logits.double().softmax(-1).sort(descending=True)
    largest = ordered.values[: top_k or len(logits)]
    largest = largest / largest.sum()
    num_kept = 0
    reached = 0.0
    while num_kept < len(largest) and (num_kept == 0 or reached < top_p):
        reached += float(largest[num_kept])
        num_kept += 1
    return set(torch.nonzero(logits >= logits[ordered.indices[num_kept - 1]]).flatten().tolist())


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("top_k", [0, 7, 256, 257, 600, 2000])
@pytest.mark.parametrize("top_p", [0.05, 0.93, 1.0])
def test_just_what_top_k_and_top_p_keep_can_be_chosen(
    spread: float, top_k: int, top_p: float
) -> None:
    torch.manual_seed(top_k)
    logits = torch.randn(1000) * spread
    uniforms = [(index + 0.5) / 4000 for index in range(4000)]
    how = choices(4000, top_k=top_k, top_p=top_p, uniforms=uniforms)
    chosen = set(sample(logits.expand(4000, -1), how).tolist())
    allowed = kept(logits, top_k, top_p)
    # rounding may move the border by one token; tokens rarer than the grid may be missed
    assert len(chosen - allowed) <= 1
    rare = {i for i in allowed if logits.softmax(-1)[i] < 1 / 3000}
    assert len(allowed - chosen - rare) <= 1


def test_equals_at_the_border_all_stay() -> None:
    logits = torch.tensor([1.0, 1.0, 1.0, 0.0]).expand(90, -1)
    uniforms = [(index + 0.5) / 90 for index in range(90)]
    for how in ({"top_k": 2}, {"top_p": 0.4}):
        chosen = sample(logits, choices(90, uniforms=uniforms, **how))
        assert set(chosen.tolist()) == {0, 1, 2}


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    assert sample(logits, choices(1, temperature=0.0)).tolist() == [1]


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 1.0},
        {"temperature": 0.7},
        {"temperature": 2.0, "top_k": 3},
        {"temperature": 1.0, "min_p": 0.3},
        {"temperature": 1.6, "top_k": 4, "top_p": 0.8, "min_p": 0.12},
    ],
    ids=str,
)
def test_tokens_come_as_often_as_they_should(how: dict[str, Any]) -> None:
    """Chi-squared of 20,000 draws with a fixed seed, far below what chance gives in a million."""
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0, 1.5])
    num_rows = 20000
    uniforms = draw_uniforms([11] * num_rows, range(num_rows)).tolist()
    chosen = sample(logits.expand(num_rows, -1), choices(num_rows, uniforms=uniforms, **how))
    expected = num_rows * reference_distribution(logits.numpy(), **how)
    found = chosen.bincount(minlength=5).numpy()
    assert (found[expected == 0] == 0).all()
    likely = expected > 0
    chi_squared = ((found - expected)[likely] ** 2 / expected[likely]).sum()
    assert chi_squared < 33  # five tokens, p < 1e-6


def reference_distribution(
    logits: np.ndarray[Any, Any],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> np.ndarray[Any, Any]:
    """Temperature, min_p, top_k, top_p, one after the other, each over what the last one left."""

    def normalize(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        total: np.ndarray[Any, Any] = values / values.sum()
        return total

    p = normalize(np.exp(logits.astype(np.float64) / temperature))
    p = normalize(np.where(p < min_p * p.max(), 0, p))
    if top_k:
        p = normalize(np.where(p < np.sort(p)[-top_k], 0, p))
    order = np.argsort(-p)
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= top_p]] = 0
    return normalize(p)


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("min_p", [1e-4, 0.05, 0.5, 1.0])
def test_just_what_min_p_keeps_can_be_chosen(spread: float, min_p: float) -> None:
    torch.manual_seed(3)
    logits = torch.randn(1000) * spread
    uniforms = [(index + 0.5) / 4000 for index in range(4000)]
    chosen = set(
        sample(logits.expand(4000, -1), choices(4000, min_p=min_p, uniforms=uniforms)).tolist()
    )
    probabilities = logits.double().softmax(-1)
    allowed = set(torch.nonzero(probabilities >= min_p * probabilities.max()).flatten().tolist())
    assert chosen <= allowed
    assert {i for i in allowed if probabilities[i] > 1 / 3000} <= chosen


def test_the_last_possible_number_never_leaves_what_is_kept() -> None:
    logits = torch.tensor([[5.0, 4.0, 3.0] + [-200.0] * 50])
    how = choices(1, uniforms=[math.nextafter(1.0, 0.0)])
    assert sample(logits, how).tolist() == [2]
