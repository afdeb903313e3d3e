"""Several services on one cluster."""

import pytest

from quire_engine.errors import ConfigError
from quire_local.simulate.hardware import Limits
from quire_local.simulate.scalers.quire import QuireScaler
from quire_local.simulate.several import Several, SimulatedService
from tests.unit.local.simulate.builders import SLO, engine_types, scenario, traffic


def service(name: str, rate: float, priority: int = 0, num_nodes: int = 4) -> SimulatedService:
    types = engine_types("l4", num_nodes=num_nodes, start_seconds=10.0)
    limits = Limits(cold_start_queue_seconds=10.0)
    return SimulatedService(
        name=name,
        priority=priority,
        scenario=scenario(traffic(45.0, rate), types, limits=limits),
        scaler=QuireScaler(types, {"l4": 1}, slo=SLO, limits=limits, max_replicas=8),
    )


def test_who_is_more_important_gets_the_gpus() -> None:
    # either alone would take all four
    several = Several([service("low", 8.0), service("high", 8.0, priority=5)])
    results = several.run()
    assert max(one.ready["l4"] for one in results["high"].samples) >= 3
    # and the other keeps its minimum
    assert {one.ready["l4"] for one in results["low"].samples} == {1}
    assert results["high"].attainment > results["low"].attainment
    for at, pair in enumerate(zip(*(one.samples for one in results.values()), strict=False)):
        assert sum(one.ready["l4"] for one in pair) <= 4, at
    assert all(one.num_lost == 0 for one in results.values())


def test_a_seed_is_a_result_for_several_too() -> None:
    def run() -> list[object]:
        results = Several([service("a", 3.0), service("b", 2.0, priority=1)]).run()
        return [(name, one) for name, one in results.items()]

    assert run() == run()


def test_contradictions_are_said() -> None:
    with pytest.raises(ConfigError, match="a name of its own"):
        Several([service("a", 1.0), service("a", 1.0)])
    with pytest.raises(ConfigError, match="must agree on how many"):
        Several([service("a", 1.0), service("b", 1.0, num_nodes=3)])
