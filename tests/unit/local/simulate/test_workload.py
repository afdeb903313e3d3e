"""Traffic: recorded with its oddities, or generated."""

import random
import statistics
from pathlib import Path

import pytest

from quire_engine.errors import ConfigError
from quire_engine.profiles.traces import TraceRequest, multiply_rate, read_trace
from quire_local.simulate.workload import (
    KINDS,
    Kind,
    Workload,
    describe_holes,
    generate_workload,
    prepare,
    read_workload,
)

ROWS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46,374,44\n"
    "2023-11-16 18:15:50,nonsense,44\n"
    "2023-11-16 18:15:49,10,5\n"
    "2023-11-16 18:15:48,20,5\n"
    "2023-11-16 18:15:51,0,5\n"
)


@pytest.fixture
def bad_trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(ROWS)
    return path


def test_a_wrong_row_is_an_error_that_says_what_to_do(bad_trace: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 3: ContextTokens .*--skip-bad-rows"):
        read_workload(bad_trace, skips_bad_rows=False)


def test_wrong_rows_are_left_out_and_said(bad_trace: Path) -> None:
    workload = read_workload(bad_trace, skips_bad_rows=True)
    arrivals = [(one.arrival_seconds, one.num_prompt_tokens) for one in workload.trace]
    assert arrivals == [(0.0, 374), (2.0, 20), (3.0, 10)]
    (remark,) = workload.remarks
    assert remark.startswith("2 rows are wrong and left out")
    assert "line 3" in remark
    assert "line 6" in remark


def test_a_trace_of_wrong_rows_alone_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(ROWS.splitlines(keepends=True)[0] + "today,1,1\n")
    with pytest.raises(ConfigError, match=r"no row that is right; the first: .*line 2"):
        read_workload(path, skips_bad_rows=True)
    with pytest.raises(ConfigError, match="line 2"):
        read_trace(path)


@pytest.mark.parametrize("kind", KINDS)
def test_generated_traffic_has_the_rate_asked_for(kind: Kind) -> None:
    workload = generate_workload(kind, requests_per_second=4.0, seconds=1800.0, seed=1)
    assert workload.requests_per_second == pytest.approx(4.0, rel=0.15)
    again = generate_workload(kind, requests_per_second=4.0, seconds=1800.0, seed=1)
    assert again.trace == workload.trace
    other = generate_workload(kind, requests_per_second=4.0, seconds=1800.0, seed=2)
    assert other.trace != workload.trace


def test_a_day_has_a_night_and_a_shifting_mix_shifts() -> None:
    day = generate_workload("diurnal", requests_per_second=4.0, seconds=2000.0, seed=0).trace
    night = sum(one.arrival_seconds < 250 or one.arrival_seconds > 1750 for one in day)
    noon = sum(750 < one.arrival_seconds < 1250 for one in day)
    assert noon > 4 * night
    mix = generate_workload("shifting", requests_per_second=4.0, seconds=2000.0, seed=0).trace
    first, middle, last = (
        [one for one in mix if low <= one.arrival_seconds < low + 300] for low in (0, 850, 1700)
    )
    assert _mean_prompt(middle) > 3 * _mean_prompt(first)
    assert _mean_output(last) > 5 * _mean_output(middle)


def _mean_prompt(trace: list[TraceRequest]) -> float:
    return statistics.mean(one.num_prompt_tokens for one in trace)


def _mean_output(trace: list[TraceRequest]) -> float:
    return statistics.mean(one.num_output_tokens for one in trace)


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0.0, 10.0), (float("nan"), 10.0), (1e-9, 10.0), (1e5, 1e5)]
)
def test_impossible_traffic_is_refused(rate: float, seconds: float) -> None:
    with pytest.raises(ConfigError):
        generate_workload("poisson", requests_per_second=rate, seconds=seconds, seed=0)


def test_multiplied_traffic_keeps_its_minutes() -> None:
    trace = [TraceRequest(at * 0.1, 100, 10) for at in range(1000)]
    trace += [TraceRequest(500.0 + at * 0.1, 100, 10) for at in range(1000)]
    for factor in (0.3, 2.5):
        made = multiply_rate(trace, factor, random.Random(0))
        assert len(made) == pytest.approx(factor * len(trace), rel=0.1)
        assert made == sorted(made, key=lambda one: one.arrival_seconds)
        early = sum(one.arrival_seconds < 300 for one in made)
        assert early == pytest.approx(factor * 1000, rel=0.1)
        assert 0.0 <= made[0].arrival_seconds <= made[-1].arrival_seconds <= 599.9
    many = multiply_rate(trace, 16.0, random.Random(0))
    for end in (0.0, 599.0):
        in_a_second = sum(end <= one.arrival_seconds < end + 1.0 for one in many)
        assert in_a_second < 3 * 16 * 10, "copies do not pile up at the trace's ends"
    short = multiply_rate(trace[:5], 9.0, random.Random(0))
    assert len({one.arrival_seconds for one in short}) > 30
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="factor above 0"):
            multiply_rate(trace, factor, random.Random(0))
    with pytest.raises(ConfigError, match="nothing is left"):
        multiply_rate(trace[:1], 1e-9, random.Random(0))


def test_what_no_engine_takes_is_left_out_and_said() -> None:
    workload = Workload("w", [TraceRequest(0.0, 90, 5), TraceRequest(1.0, 99, 2)])
    kept = prepare(workload, times=1.0, seconds=None, max_model_len=100, seed=0)
    assert len(kept.trace) == 1
    assert kept.remarks[0].startswith("1 of 2 requests is longer than 100 tokens")
    with pytest.raises(ConfigError, match="no request of w fits 50 tokens"):
        prepare(workload, times=1.0, seconds=None, max_model_len=50, seed=0)


def test_holes_are_said() -> None:
    steady = [TraceRequest(at * 1.0, 1, 1) for at in range(300)]
    assert describe_holes(steady) == []
    holed = [*steady, *[TraceRequest(1500.0 + at, 1, 1) for at in range(300)]]
    (remark,) = describe_holes(holed)
    assert remark.startswith("1 hole")
    assert "1201 s from second 299" in remark
    assert "at one moment" in describe_holes([TraceRequest(0.0, 1, 1)] * 3)[0]
    assert describe_holes([TraceRequest(0.0, 1, 1)]) == []
