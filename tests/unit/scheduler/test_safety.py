"""Margins that are learnt while serving: against preemption, and against late first tokens."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.scheduler.prediction_error import PredictionError
from quire_engine.scheduler.safety import (
    LARGEST,
    NEXT_RISE,
    NUM_ENDS_OF_BURST,
    RISE,
    TARGET,
    SafetyMargin,
)


@given(st.lists(st.booleans(), max_size=500))
def test_the_margin_stays_within_its_bounds(events: list[bool]) -> None:
    margin = SafetyMargin()
    for is_preemption in events:
        before = margin.z
        if is_preemption:
            margin.count_preemption()
            assert margin.z >= before
        else:
            margin.count_end()
            assert margin.z <= before
        assert 0.0 <= margin.z <= LARGEST


def test_the_margin_settles_where_its_share_of_requests_is_preempted() -> None:
    margin, source = SafetyMargin(), random.Random(0)
    num_requests, num_preemptions = 60_000, 0
    for _ in range(num_requests):
        if source.random() < 0.1 * 0.1**margin.z:  # each deviation makes it ten times rarer
            margin.count_preemption()
            num_preemptions += 1
        margin.count_end()
    assert num_preemptions / num_requests == pytest.approx(TARGET, rel=0.25)


def test_without_preemptions_no_block_is_kept_back() -> None:
    margin = SafetyMargin()
    for _ in range(4000):
        margin.count_end()
    assert margin.z == 0.0


def test_a_burst_of_preemptions_is_one_error() -> None:
    burst, spread = SafetyMargin(z=0.0), SafetyMargin(z=0.0)
    for _ in range(10):
        burst.count_preemption()
        spread.count_preemption()
        for _ in range(NUM_ENDS_OF_BURST):
            spread.count_end()
    assert RISE < burst.z < RISE / (1 - NEXT_RISE)
    assert spread.z > 2 * burst.z


@given(st.floats(-5, 5), st.floats(0.1, 100))
def test_a_constant_error_is_taken_out_of_predictions(error: float, predicted: float) -> None:
    errors = PredictionError()
    for _ in range(100):
        errors.observe(10.0, 10.0 + error)
    assert errors.lower(predicted) == pytest.approx(max(predicted + error, 0.0), abs=1e-4)


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 60)), max_size=50), st.floats(0, 60))
def test_a_prediction_never_becomes_negative(
    pairs: list[tuple[float, float]], predicted: float
) -> None:
    errors = PredictionError()
    for expected, actual in pairs:
        errors.observe(expected, actual)
    assert errors.lower(predicted) >= 0.0


def test_the_wider_errors_are_spread_the_fewer_are_refused() -> None:
    narrow, wide = PredictionError(), PredictionError()
    for sign in (-1, 1) * 50:
        narrow.observe(10.0, 10.0 + 0.1 * sign)
        wide.observe(10.0, 10.0 + 3.0 * sign)
    assert wide.lower(10.0) < narrow.lower(10.0) < 10.0
