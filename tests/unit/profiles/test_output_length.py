import math
import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.errors import ConfigError
from quire_engine.profiles.output_length import (
    MAX_LENGTH,
    NUM_BUCKETS,
    OutputLengthSketch,
    SketchState,
    bucket_of,
    bucket_start,
)

NEVER_FADES = 1e12
NO_PRIOR = 1e-12

Outcome = tuple[int, bool]
"""(output tokens, whether it ended of its own accord)."""


def build_sketch(
    outcomes: Sequence[Outcome], *, half_life: float = NEVER_FADES, prior_weight: float = NO_PRIOR
) -> OutputLengthSketch:
    sketch = OutputLengthSketch(half_life=half_life, prior_weight=prior_weight)
    for num_tokens, ended in outcomes:
        sketch.add(num_tokens, ended=ended)
    return sketch


def kaplan_meier(outcomes: Sequence[Outcome], num_tokens: int) -> float:
    """P(length > num_tokens) by the textbook, one length at a time."""
    survival = 1.0
    for length in sorted({tokens for tokens, ended in outcomes if ended and tokens <= num_tokens}):
        at_risk = sum(tokens >= length for tokens, _ in outcomes)
        ended = sum(tokens == length and ended for tokens, ended in outcomes)
        survival *= 1 - ended / at_risk
    return survival


def assert_equal_curves(
    first: OutputLengthSketch, second: OutputLengthSketch, *, within: float
) -> None:
    tables = (sketch.curve().table(3100) for sketch in (first, second))
    assert max(abs(a - b) for a, b in zip(*tables, strict=True)) <= within


def draw_outcomes(seed: int, count: int, mean: float, share_cut: float) -> list[Outcome]:
    """Exponential lengths, some cut off by an independent time of the same kind."""
    source = random.Random(seed)
    outcomes = []
    for _ in range(count):
        length = max(round(source.expovariate(1 / mean)), 1)
        limit = max(round(source.expovariate(share_cut / (1 - share_cut) / mean)), 1)
        outcomes.append((min(length, limit), length < limit))
    return outcomes


def test_buckets_follow_each_other_without_gaps() -> None:
    for bucket in range(NUM_BUCKETS):
        assert bucket_of(bucket_start(bucket)) == bucket
        assert bucket_of(bucket_start(bucket + 1) - 1) == bucket
    assert bucket_start(NUM_BUCKETS) == MAX_LENGTH + 1
    assert bucket_of(10**9) == NUM_BUCKETS - 1


def test_buckets_are_exact_for_short_lengths_and_narrow_for_long_ones() -> None:
    assert [bucket_of(length) for length in range(32)] == list(range(32))
    for bucket in range(32, NUM_BUCKETS):
        width = bucket_start(bucket + 1) - bucket_start(bucket)
        assert width / bucket_start(bucket) <= 1 / 16


@given(
    outcomes=st.lists(st.tuples(st.integers(1, 31), st.booleans()), min_size=1, max_size=60),
    have=st.integers(0, 40),
    ahead=st.integers(0, 40),
)
def test_short_lengths_are_kaplan_meier_exactly(
    outcomes: list[Outcome], have: int, ahead: int
) -> None:
    # one that never ends keeps the estimate away from 0 / 0
    outcomes = [*outcomes, (1000, False)]
    curve = build_sketch(outcomes).curve()
    expected = kaplan_meier(outcomes, have + ahead) / kaplan_meier(outcomes, have)
    assert curve.survival(have, ahead) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("share_cut", [0.05, 0.3, 0.6])
def test_long_lengths_are_kaplan_meier_within_a_bucket(share_cut: float) -> None:
    outcomes = draw_outcomes(1, 2000, mean=400, share_cut=share_cut)
    curve = build_sketch(outcomes).curve()
    for num_tokens in (10, 100, 400, 800):
        assert curve.longer_than(num_tokens) == pytest.approx(
            kaplan_meier(outcomes, num_tokens), abs=0.02
        )


def test_cut_off_requests_do_not_look_like_short_ones() -> None:
    """Half of all requests are aborted early; the true lengths still come out."""
    outcomes = draw_outcomes(2, 20_000, mean=300, share_cut=0.5)
    curve = build_sketch(outcomes).curve()
    for num_tokens in (50, 150, 300, 600):
        assert curve.longer_than(num_tokens) == pytest.approx(math.exp(-num_tokens / 300), abs=0.02)


def test_running_requests_keep_the_first_minutes_honest() -> None:
    """All requests are 100 or 900 tokens long, half and half; only the short ones have ended."""
    sketch = build_sketch([(100, True)] * 50, prior_weight=2)
    assert sketch.curve().longer_than(500) < 0.05
    running = [(400, sketch.begin()) for _ in range(50)]
    assert sketch.curve(running).longer_than(500) == pytest.approx(0.5, abs=0.02)


def test_those_that_began_together_weigh_the_same_whether_they_ended_or_run() -> None:
    """One of each two runs on; with weights by the time of ending, it would seem more than half."""
    sketch = OutputLengthSketch(half_life=20, prior_weight=NO_PRIOR)
    running = []
    for _ in range(200):
        running.append((1000, sketch.begin()))
        sketch.add(10, ended=True, number=sketch.begin())
    for _ in range(60):
        sketch.begin()
    assert sketch.curve(running).longer_than(500) == pytest.approx(0.5, abs=0.02)


def test_with_nothing_known_a_request_uses_all_it_may() -> None:
    curve = OutputLengthSketch().curve()
    assert curve.survival(10, 80, max_tokens=100) == 1.0
    assert curve.survival(10, 90, max_tokens=100) == 0.0


def test_beyond_all_that_was_seen_a_request_uses_all_it_may() -> None:
    curve = build_sketch([(50, True)] * 1000, prior_weight=2).curve()
    assert curve.survival(10, 60, max_tokens=4096) < 0.01
    assert curve.survival(60, 2000, max_tokens=4096) == 1.0


def test_a_heavier_prior_believes_later() -> None:
    outcomes = [(50, True)] * 20
    light, heavy = (build_sketch(outcomes, prior_weight=weight).curve() for weight in (1, 20))
    assert light.longer_than(60) == pytest.approx(1 / 21)
    assert heavy.longer_than(60) == pytest.approx(1 / 2)


def test_old_requests_fade() -> None:
    sketch = build_sketch([(100, True)] * 500, half_life=50)
    for _ in range(500):
        sketch.add(800, ended=True)
    assert sketch.curve().longer_than(400) > 0.99


def test_the_newest_of_one_half_life_weigh_as_much_as_all_before() -> None:
    sketch = build_sketch([(100, True)] * 2000 + [(800, True)] * 100, half_life=100)
    assert sketch.curve().longer_than(400) == pytest.approx(0.5, abs=0.01)


def test_weights_stay_finite_for_ever() -> None:
    sketch = build_sketch([(10, True), (20, True)] * 5000, half_life=2)
    assert sketch.num_requests == pytest.approx(1 / (1 - 2**-0.5), rel=1e-6)
    assert 0 < sketch.curve().longer_than(15) < 1


outcomes_lists = st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=40)


@given(outcomes=outcomes_lists, running=st.lists(st.integers(0, 3000), max_size=10))
def test_survival_falls_from_one_and_never_reaches_zero(
    outcomes: list[Outcome], running: list[int]
) -> None:
    sketch = build_sketch(outcomes, prior_weight=2)
    curve = sketch.curve((num_tokens, sketch.begin()) for num_tokens in running)
    table = curve.table(4000)
    assert table[0] <= 1.0
    assert min(table) > 0
    assert all(b <= a + 1e-12 for a, b in pairwise(table))


@given(outcomes=outcomes_lists, length=st.integers(0, 5000))
def test_the_table_is_the_curve(outcomes: list[Outcome], length: int) -> None:
    curve = build_sketch(outcomes, prior_weight=2).curve()
    table = curve.table(length)
    assert len(table) == length + 1
    assert table[length] == pytest.approx(curve.longer_than(length), rel=1e-12)


@given(first=outcomes_lists, second=outcomes_lists)
def test_merging_is_seeing_both(first: list[Outcome], second: list[Outcome]) -> None:
    merged = build_sketch(first)
    merged.merge(build_sketch(second))
    both = build_sketch([*first, *second])
    assert merged.num_requests == pytest.approx(both.num_requests)
    assert_equal_curves(merged, both, within=1e-6)


@given(outcomes=outcomes_lists)
def test_a_sketch_survives_the_wire(outcomes: list[Outcome]) -> None:
    sketch = build_sketch(outcomes, half_life=20, prior_weight=2)
    data = msgspec.json.encode(sketch.to_state())
    restored = OutputLengthSketch.from_state(msgspec.json.decode(data, type=SketchState))
    for one in (sketch, restored):
        one.add(77, ended=True)
    assert_equal_curves(restored, sketch, within=1e-12)


def test_a_full_sketch_is_small() -> None:
    sketch = build_sketch([(n, True) for n in range(1, 100_000, 7)], half_life=1000)
    assert len(msgspec.json.encode(sketch.to_state())) < 16_384


@pytest.mark.parametrize(
    "state",
    [
        SketchState(half_life=100, prior_weight=2, buckets=[], schema_version=9),
        SketchState(half_life=0, prior_weight=2, buckets=[]),
        SketchState(half_life=math.nan, prior_weight=2, buckets=[]),
        SketchState(half_life=100, prior_weight=-1, buckets=[]),
        SketchState(half_life=100, prior_weight=2, buckets=[(NUM_BUCKETS, 1, 0)]),
        SketchState(half_life=100, prior_weight=2, buckets=[(-1, 1, 0)]),
        SketchState(half_life=100, prior_weight=2, buckets=[(3, -1, 0)]),
        SketchState(half_life=100, prior_weight=2, buckets=[(3, 0, math.inf)]),
    ],
)
def test_impossible_states_are_refused(state: SketchState) -> None:
    with pytest.raises(ConfigError, match="output sketch"):
        OutputLengthSketch.from_state(state)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 tokens"):
        OutputLengthSketch().add(-1, ended=True)
