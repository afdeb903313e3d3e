"""Sampling against a sorted reference with the same noise."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.errors import ArgumentError, UnsupportedError
from quire_kernels.ops.sampling import sample
from quire_kernels.reference.sampling import gumbel_noise, philox, scores_reference
from tests.unit.kernels.sampling_cases import make_parameters, make_penalties

ROWS: list[dict[str, float]] = [
    {"temperature": 0.0, "top_k": 3, "top_p": 0.1},
    {},
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 1.7, "top_p": 0.3},
    {"top_k": 1},
    {"top_k": 50},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.02},
    {"min_p": 0.3},
    {"top_p": 0.0},
    {"top_k": 4000, "top_p": 0.5, "temperature": 3.0},
]


def logits_of(
    num_rows: int, vocab_size: int, *, spread: float = 3.0, seed: int = 0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, vocab_size, generator=generator) * spread


def assert_samples(out: torch.Tensor, scores: torch.Tensor) -> None:
    """The picked token has the best score, up to the noise's fp32 rounding."""
    picked = scores.gather(1, out.cpu().long()[:, None])[:, 0]
    assert torch.isfinite(picked).all()
    assert (picked >= scores.max(1).values - 1e-4).all()


def test_philox_matches_its_published_answer() -> None:
    # Random123's known-answer test: counter 0, key 0.
    words = philox(0, torch.zeros(1, dtype=torch.int64), 0, rounds=10)
    assert [int(word) for word in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("vocab_size", [4500, 33])
def test_every_truncation_equals_sorting(vocab_size: int) -> None:
    logits = logits_of(len(ROWS), vocab_size)
    parameters = make_parameters(ROWS)
    out = torch.full((len(ROWS),), -1, dtype=torch.int32)
    sample(logits, parameters, out=out)
    assert_samples(out, scores_reference(logits, parameters))


def test_flat_logits_are_the_hard_case_for_top_k_and_top_p() -> None:
    logits = logits_of(3, 1200, spread=0.01)
    parameters = make_parameters([{"top_k": 7}, {"top_p": 0.05}, {"top_k": 100, "top_p": 0.2}])
    assert_samples(sample(logits, parameters), scores_reference(logits, parameters))


def test_ties_of_low_precision_logits() -> None:
    logits = logits_of(3, 5000).to(torch.bfloat16)
    parameters = make_parameters([{"top_k": 40}, {"top_p": 0.5}, {"temperature": 0.0}])
    assert_samples(sample(logits, parameters), scores_reference(logits, parameters))


@pytest.mark.parametrize("num_rows", [1, 3])
def test_top_k_of_few_tokens_side_by_side_comes_to_an_end(num_rows: int) -> None:
    logits = logits_of(num_rows, 4500)
    allowed = torch.zeros(num_rows, 141, dtype=torch.int32)
    allowed[:, 1] = 0x3FF  # ten digits of a grammar, say: fewer segments than top_k
    parameters = make_parameters([{"top_k": 3, "seed": row} for row in range(num_rows)])
    out = sample(logits, parameters, allowed=allowed)
    assert_samples(out, scores_reference(logits, parameters, allowed=allowed))


def test_penalties_and_allowed_tokens() -> None:
    rows = ROWS[:4]
    logits = logits_of(len(rows), 4500)
    penalties = make_penalties(len(rows), 4500)
    generator = torch.Generator().manual_seed(1)
    allowed = torch.randint(-(2**31), 2**31, (len(rows), 141), generator=generator).int()
    parameters = make_parameters(rows)
    out = sample(logits, parameters, penalties=penalties, allowed=allowed)
    scores = scores_reference(logits, parameters, penalties=penalties, allowed=allowed)
    assert_samples(out, scores)


def test_a_row_depends_on_its_seed_and_position_alone() -> None:
    logits = logits_of(1, 5000, spread=0.5).repeat(4, 1)
    key = {"seed": 2**40 + 5, "position": 77}
    parameters = make_parameters([key, {}, key, {**key, "position": 78}])
    first, other, again, later = sample(logits, parameters).tolist()
    assert first == again
    assert len({first, other, later}) == 3
    alone = make_parameters([key], truncates=False)
    assert sample(logits[:1], alone).tolist() == [first]


def test_noise_is_gumbel() -> None:
    noise = gumbel_noise(3, 5, 200_000)
    assert abs(float(noise.mean()) - 0.57722) < 4 * 1.2825 / 200_000**0.5
    assert abs(float(noise.var()) - 1.64493) < 0.05


@pytest.mark.parametrize("truncates", [True, False])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "knob", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 0.0}, {}]
)
def test_one_logit_that_is_not_finite_spoils_its_row_and_no_other(
    knob: dict[str, float], poison: float, truncates: bool
) -> None:
    logits = logits_of(3, 9000)
    parameters = make_parameters([knob] * 3, truncates=truncates)
    expected = sample(logits, parameters).tolist()
    logits[1, 7000] = poison

    assert sample(logits, parameters).tolist() == [expected[0], -1, expected[2]]


@pytest.mark.parametrize("knob", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {}])
def test_a_row_without_a_finite_logit_has_no_token(knob: dict[str, float]) -> None:
    logits = torch.full((1, 100), float("-inf"))
    assert sample(logits, make_parameters([knob])).tolist() == [-1]


def test_what_is_not_allowed_spoils_nothing() -> None:
    logits = torch.zeros(1, 64)
    logits[0, 40] = float("nan")
    allowed = torch.tensor([[-1, 0]], dtype=torch.int32)  # the first 32 tokens
    (token,) = sample(logits, make_parameters([{}]), allowed=allowed).tolist()
    assert 0 <= token < 32


def test_wrong_arguments_are_refused() -> None:
    parameters = make_parameters([{}])
    with pytest.raises(ArgumentError, match="temperature: shape"):
        sample(torch.zeros(2, 10), parameters)
    with pytest.raises(ArgumentError, match="last dimension"):
        sample(torch.zeros(10, 1).expand(10, 2).T.contiguous().T[:1], parameters)
    with pytest.raises(UnsupportedError, match="float64"):
        sample(torch.zeros(1, 10, dtype=torch.float64), parameters)
