"""Bursts within a window: found and told, and chance is none."""

import json
from pathlib import Path
from random import Random

import pytest

from quire_engine.profiles.traces import TraceRequest
from quire_local.cli import main
from quire_local.simulate.bursts import find_burst
from quire_local.simulate.sizing import SizedWindow

_SECONDS = 3600


def _trace(rate: float, bursts: dict[int, int], seed: int = 0) -> list[TraceRequest]:
    """Independent requests, and so many more within 10 s at each of these seconds."""
    random = Random(seed)
    times = [random.uniform(0, _SECONDS) for _ in range(int(rate * _SECONDS))]
    times += [at + 10 * n / num for at, num in bursts.items() for n in range(num)]
    return [
        TraceRequest(arrival_seconds=at, num_prompt_tokens=300, num_output_tokens=50)
        for at in sorted(times)
    ]


def _windows(trace: list[TraceRequest]) -> list[SizedWindow]:
    return [
        SizedWindow(
            at=at,
            seconds=300.0,
            replicas={},
            dollars_per_hour=0.0,
            requests_per_second=sum(at <= one.arrival_seconds < at + 300 for one in trace) / 300,
            output_tokens_per_second=0.0,
            unserved=0.0,
            loads={},
        )
        for at in range(0, _SECONDS, 300)
    ]


def test_the_burst_furthest_above_its_window_is_found() -> None:
    trace = _trace(0.9, {700: 80, 1500: 120})
    burst = find_burst(trace, _windows(trace))
    assert burst is not None
    assert 1485 < burst.at <= 1500
    assert 120 <= burst.num_requests < 150
    assert 10 < burst.usual < 30


@pytest.mark.parametrize("rate", [0.02, 0.3, 2.0, 10.0])
def test_chance_is_no_burst(rate: float) -> None:
    for seed in range(3):
        trace = _trace(rate, {}, seed)
        assert find_burst(trace, _windows(trace)) is None


def test_a_plan_says_so_and_a_window_as_short_as_the_burst_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"arrival_seconds": one.arrival_seconds, "prompt_tokens": 300, "output_tokens": 50}
        for one in _trace(0.5, {900: 80})
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plan = ["plan", "--trace", f"{path}", "--gpu", "l4", "--quantization", "int4"]
    assert main(plan) == 0
    told = capsys.readouterr().out
    assert "requests come within 15 s at second" in told
    assert "--window 15s" in told
    assert main([*plan, "--window", "15s"]) == 0
    assert "come within" not in capsys.readouterr().out
