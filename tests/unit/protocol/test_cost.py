"""What a request costs: properties of predicted occupancy, and of sums of it."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.protocol.cost import (
    HORIZONS,
    NOTHING,
    Occupancy,
    OccupancyCurve,
    Survival,
    predict_occupancy,
    tokens_until_below,
    tokens_until_given,
)

BLOCK_SIZE = 16

ends_per_token = st.floats(0.0001, 0.2)
token_counts = st.integers(1, 5000)


def geometric(end: float) -> Survival:
    """Every token is the last one with probability `end`."""
    return lambda generated, ahead: (1.0 - end) ** ahead


def never_ends(generated: int, ahead: int) -> float:
    return 1.0


def predict(
    tokens: int = 100,
    *,
    generated: int = 0,
    remaining: int = 4000,
    survival: Survival = never_ends,
    fixed: float = 0.0,
    sequences: int = 1,
) -> Occupancy:
    return predict_occupancy(
        private_tokens=tokens,
        block_size=BLOCK_SIZE,
        num_generated=generated,
        max_remaining_tokens=remaining,
        survival=survival,
        fixed_blocks=fixed,
        num_sequences=sequences,
    )


@given(tokens=token_counts, end=ends_per_token)
def test_the_first_point_is_what_its_known_tokens_take(tokens: int, end: float) -> None:
    occupancy = predict(tokens, survival=geometric(end))
    assert occupancy.mean[0] == -(-tokens // BLOCK_SIZE)
    assert occupancy.variance[0] == 0.0
    assert occupancy.peak >= occupancy.mean[0]


@given(tokens=token_counts, end=ends_per_token, further=st.floats(1.0, 3.0))
def test_who_ends_sooner_costs_no_more(tokens: int, end: float, further: float) -> None:
    longer = predict(tokens, survival=geometric(end))
    shorter = predict(tokens, survival=geometric(min(end * further, 1.0)))
    assert shorter.peak <= longer.peak
    assert all(a <= b for a, b in zip(shorter.mean, longer.mean, strict=True))
    assert all(a >= b for a, b in pairwise(shorter.alive))


@given(tokens=token_counts, remaining=st.integers(1, 10_000))
def test_no_blocks_are_predicted_beyond_the_last_token(tokens: int, remaining: int) -> None:
    occupancy = predict(tokens, remaining=remaining)
    for ahead, mean in zip(HORIZONS[1:], occupancy.mean[1:], strict=True):
        size = -(-(tokens + ahead) // BLOCK_SIZE)
        assert mean == (size if ahead < remaining else 0.0)
    assert occupancy.peak <= -(-(tokens + remaining) // BLOCK_SIZE)


@given(blocks=st.integers(1, 50), own=token_counts, end=ends_per_token)
def test_shared_blocks_are_subtracted_and_a_share_of_them_added(
    blocks: int, own: int, end: float
) -> None:
    alone = predict(blocks * BLOCK_SIZE + own, survival=geometric(end))
    free = predict(own, survival=geometric(end))
    shared = predict(own, survival=geometric(end), fixed=blocks / 4)
    for one, none, quarter, alive in zip(
        alone.mean, free.mean, shared.mean, alone.alive, strict=True
    ):
        assert one - none == pytest.approx(alive * blocks)
        assert quarter - none == pytest.approx(alive * blocks / 4)


@given(tokens=token_counts, sequences=st.integers(1, 8), end=ends_per_token)
def test_sequences_side_by_side_grow_each_for_itself(
    tokens: int, sequences: int, end: float
) -> None:
    one = predict(tokens, survival=geometric(end))
    together = predict(tokens, survival=geometric(end), sequences=sequences)
    assert list(together.mean) == pytest.approx([sequences * mean for mean in one.mean])
    # they end together: nothing averages out between them
    assert list(together.variance) == pytest.approx([sequences**2 * v for v in one.variance])


occupancies = st.builds(
    lambda tokens, remaining, end: predict(tokens, remaining=remaining, survival=geometric(end)),
    token_counts,
    st.integers(1, 5000),
    ends_per_token,
)


@given(st.lists(occupancies, max_size=8))
def test_a_curve_is_the_sum_of_its_requests_and_empties_to_zero(parts: list[Occupancy]) -> None:
    curve = OccupancyCurve(parts)
    for index in range(len(HORIZONS)):
        assert curve.mean[index] == pytest.approx(sum(part.mean[index] for part in parts))
    for part in sorted(parts, key=lambda part: part.peak):
        curve.replace(part, NOTHING)
    assert curve.mean == pytest.approx([0.0] * len(HORIZONS), abs=1e-6)
    assert curve.alive == pytest.approx([0.0] * len(HORIZONS), abs=1e-9)


@given(st.lists(occupancies, min_size=1, max_size=8), st.floats(0, 3), st.floats(0, 3))
def test_more_safety_never_lowers_the_peak(parts: list[Occupancy], z: float, more: float) -> None:
    curve = OccupancyCurve(parts)
    assert max(curve.mean) <= curve.peak(z) <= curve.peak(z + more)
    assert curve.peak(0.0) <= sum(part.peak for part in parts) + 1e-6


@given(st.lists(occupancies, min_size=1, max_size=8), st.floats(-50, 50))
def test_a_shift_moves_the_present_and_fades_with_those_that_run(
    parts: list[Occupancy], blocks: float
) -> None:
    curve = OccupancyCurve(parts)
    moved = curve.shifted(blocks)
    assert moved.mean[0] == pytest.approx(curve.mean[0] + blocks)
    moves = [abs(a - b) for a, b in zip(moved.mean, curve.mean, strict=True)]
    assert all(later <= sooner + 1e-9 for sooner, later in pairwise(moves))
    assert OccupancyCurve().shifted(blocks).mean[0] == 0.0


def line(start: float, end: float) -> list[float]:
    """A straight line over the horizons."""
    return [start + (end - start) * ahead / HORIZONS[-1] for ahead in HORIZONS]


def test_a_falling_curve_is_below_a_ceiling_where_the_line_crosses_it() -> None:
    assert tokens_until_below(line(100, 0), 50) == pytest.approx(HORIZONS[-1] / 2)
    assert tokens_until_below(line(100, 0), 100) == 0.0
    assert tokens_until_below(line(100, 60), 50) is None
    # a dip below is not enough: it must stay below
    dips = tokens_until_below([40, 40, 60, *line(40, 0)[3:]], 50)
    assert dips is not None
    assert dips > HORIZONS[2]


def test_what_is_missing_is_given_at_the_pace_of_those_that_end() -> None:
    assert tokens_until_given(line(100, 0), 50) == pytest.approx(HORIZONS[-1] / 2)
    assert tokens_until_given(line(100, 0), 200) == pytest.approx(2 * HORIZONS[-1])
    assert tokens_until_given(line(100, 0), 0) == 0.0
    assert tokens_until_given(line(100, 200), 1) == inf


@given(st.lists(st.floats(0, 1e4), min_size=10, max_size=10), st.floats(0.1, 1e4))
def test_more_that_is_missing_takes_longer(values: list[float], needed: float) -> None:
    assert tokens_until_given(values, needed) <= tokens_until_given(values, 2 * needed)
