"""A long prompt is told when a lull comes, by how long busy times last. Times are in seconds."""

from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.scheduler.lulls import LEVELS_SECONDS, Lulls

MEDIAN = log(2.0)


def alternate(lulls: Lulls, busy: float, quiet: float, *, times: int, ahead: float = 3.0) -> float:
    """Let busy times and lulls follow each other; returns when the last lull ends."""
    now = 0.0
    for _ in range(times):
        lulls.observe(now, ahead)
        now += busy
        lulls.observe(now, 0.0)
        now += quiet
    return now


def test_where_it_is_quiet_enough_there_is_nothing_to_wait_for() -> None:
    lulls = Lulls()
    assert lulls.seconds_until(1.0, 0.0) == 0.0
    lulls.observe(0.0, 0.9)
    assert lulls.seconds_until(1.0, 5.0) == 0.0
    assert lulls.seconds_until(0.1, 5.0) > 0.0


def test_in_busy_times_of_equal_length_half_of_it_is_left_on_average() -> None:
    lulls = Lulls()
    now = alternate(lulls, busy=20.0, quiet=1.0, times=200)
    lulls.observe(now, 3.0)
    assert lulls.seconds_until(1.0, now) == pytest.approx(MEDIAN * 10.0, rel=0.06)


def test_who_can_stand_more_ahead_waits_for_shorter() -> None:
    lulls = Lulls()
    now = 0.0
    for _ in range(50):
        for ahead in (0.0, 0.4, 2.0, 0.4, 2.0, 0.4):
            lulls.observe(now, ahead)
            now += 1.0
    lulls.observe(now, 2.0)
    assert lulls.seconds_until(1.0, now) == pytest.approx(MEDIAN * 0.5, rel=0.06)
    assert lulls.seconds_until(0.1, now) > 2 * lulls.seconds_until(1.0, now)


def test_a_busy_time_that_goes_on_counts_as_long_as_it_is() -> None:
    lulls = Lulls()
    now = alternate(lulls, busy=1.0, quiet=1.0, times=50)
    lulls.observe(now, 3.0)
    told = [lulls.seconds_until(1.0, now + elapsed) for elapsed in (0.0, 10.0, 100.0, 1000.0)]
    assert told == sorted(told)
    assert told[-1] > 300.0


@pytest.mark.parametrize(("ahead", "is_worth_it"), [(0.0, False), (0.05, False), (1.0, True)])
def test_it_is_worth_telling_until_little_is_ahead(ahead: float, is_worth_it: bool) -> None:
    lulls = Lulls()
    assert not lulls.are_awaited
    lulls.observe(0.0, 2.0)
    lulls.observe(1.0, ahead)
    assert lulls.are_awaited is is_worth_it


@settings(deadline=None)  # a busy machine may stop anywhere
@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 1e6)), max_size=60))
def test_whatever_was_seen_a_shorter_lull_is_never_nearer_and_no_time_is_absurd(
    seen: list[tuple[float, float]],
) -> None:
    lulls, now, longest = Lulls(), 0.0, 0.0
    for elapsed, ahead in seen:
        lulls.observe(now, ahead)
        now += elapsed
        longest += elapsed
    for level in LEVELS_SECONDS:
        assert 0.0 <= lulls.seconds_until(level, now) <= longest
