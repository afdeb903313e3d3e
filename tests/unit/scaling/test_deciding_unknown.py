"""What is decided while something is not known, or not to be believed."""

from dataclasses import replace

import pytest
from msgspec import structs

from quire_operator.scaling.inputs import Replica
from tests.unit.scaling.worlds import World, accelerator, capability, codes, service


def test_what_is_not_heard_is_not_zero() -> None:
    world = World(service("l4"), rate=8.0, ordered={"l4": 6})
    world.run(100)
    world.is_gateway_heard, world.rate = False, 0.0
    world.changes = []
    world.run(1800)
    assert world.changes == []
    assert codes(world) == {"NoMetrics"}
    assert world.last is not None
    assert not world.last.are_metrics_fresh


def test_silent_engines_take_nothing_away_and_keep_nothing_from_coming() -> None:
    world = World(service("l4"), rate=0.2, ordered={"l4": 4})
    world.are_engines_heard = False
    world.run(1200)
    assert world.counts == {"l4": 4}
    assert "MetricsStale" in codes(world)
    world.rate = 20.0
    world.run(120)
    assert world.ordered["l4"] > 4


def test_a_gateway_that_is_missing_takes_nothing_away() -> None:
    world = World(service("l4", num_gateways=2), rate=0.2, ordered={"l4": 4})
    world.run(1200)
    assert world.counts == {"l4": 4}


def test_prices_that_are_missing_are_assumed_and_said() -> None:
    world = World(service("l4", "h100"), rate=1.0, ordered={"l4": 1})
    accelerators = (accelerator("l4", cost_per_hour=None), accelerator("h100"))
    world.service = replace(world.service, accelerators=accelerators)
    world.run(120)
    assert "PriceUnknown" in codes(world)
    nothing = tuple(replace(one, cost_per_hour=None) for one in accelerators)
    world.service = replace(world.service, accelerators=nothing)
    world.run(120)
    assert sum(world.ordered.values()) >= 1


def test_nothing_is_known_of_what_replicas_can_do() -> None:
    world = World(service("l4"), rate=5.0, ordered={"l4": 3})
    world.service = replace(
        world.service, accelerators=(replace(accelerator("l4"), expected=None),)
    )
    world.run(1200)
    assert world.counts == {"l4": 3}
    assert "CapacityUnknown" in codes(world)
    world.pressure = 1.2
    world.step()
    assert world.counts == {"l4": 4}
    world.step()
    assert world.counts == {"l4": 4}


def test_profiles_that_contradict_each_other_are_named() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 2})
    fast = capability("l4")
    slow = replace(
        fast,
        step_time=structs.replace(
            fast.step_time,
            compute_seconds=tuple(3 * one for one in fast.step_time.compute_seconds),
        ),
    )
    seen = world._seen
    kinds = {world.replicas[0].name: fast, world.replicas[1].name: slow}

    def contradict(one: Replica) -> Replica:
        found = seen(one)
        assert found.engine is not None
        return replace(found, engine=replace(found.engine, capability=kinds.get(one.name, fast)))

    world._seen = contradict  # type: ignore[method-assign]
    world.run(60)
    assert "ProfilesDiffer" in codes(world)


def test_figures_that_are_no_numbers_are_as_if_not_heard() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 2})
    world.pressure = float("nan")
    world.run(900)
    assert world.counts == {"l4": 2}


@pytest.mark.parametrize("back", [7.0, 3600.0])
def test_a_clock_that_goes_back_changes_nothing(back: float) -> None:
    world = World(service("l4"), rate=3.0, ordered={"l4": 2})
    world.run(900)
    world.changes = []
    world.now -= back
    world._since -= back
    world.run(900)
    assert world.changes == []
