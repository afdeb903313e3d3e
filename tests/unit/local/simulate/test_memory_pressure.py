"""One number of `memoryPressure` moved: engines, gateways and scaling all follow it."""

import pytest

from benchmarks.memory_pressure import Times, compare, draw, run, summarise
from quire_local.simulate.hardware import Limits, ServiceLevel
from quire_local.simulate.sizing import measure_capacity
from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.capacity import Capacity
from tests.unit.local.simulate.builders import engine_types

_TIMES = Times(whole=150.0, burst=(120.0, 130.0), steady=(60.0, 120.0))


def test_shed_point_routing_ceiling_and_replicas_move_together() -> None:
    before, after = (summarise(run([number], _TIMES), 0.0, _TIMES) for number in (0.95, 0.5))
    moved = compare(before, after)
    for name in ("shed_point", "routing_ceiling"):
        assert moved[name] == pytest.approx(moved["admission"], abs=0.1), name
    assert after["replicas"] > before["replicas"]


def test_a_replica_is_planned_to_do_less_where_less_is_admitted() -> None:
    [kind] = engine_types("l4")
    answers = [Bucket(prompt_tokens=600, output_tokens=800, prefill_tokens=600, rate=1.0)]
    slo = ServiceLevel(first_token_seconds=20.0, per_token_seconds=1.0)
    found = [
        measure_capacity(kind, answers, slo, Limits(target=0.6, admission=number))
        for number in (0.95, 0.5)
    ]
    all_of_it, half_of_it = (one for one in found if isinstance(one, Capacity))
    assert all_of_it.binding == half_of_it.binding == "blocks"
    assert half_of_it.concurrency == pytest.approx(all_of_it.concurrency * 0.5 / 0.95)
    assert half_of_it.requests_per_second < 0.9 * all_of_it.requests_per_second


def test_it_is_followed_while_requests_run() -> None:
    times = Times(whole=60.0, burst=(20.0, 30.0), steady=(0.0, 20.0))
    samples = run([0.95, 0.5], times)
    before, after = (summarise(samples, at * times.whole, times) for at in (0, 1))
    assert after["shed_point"] < 0.75 < before["shed_point"]
    assert after["routing_ceiling"] < 0.75 < before["routing_ceiling"]
    picture = draw(samples, 1)
    assert "要求的副本数" in picture
    assert picture.count("<polyline") == 3
