"""Services that nobody asks: when the last replica goes, and what brings the first one back."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory
from tests.unit.scaling.worlds import World, service


def test_nobody_asks_and_somebody_asks_again() -> None:
    world = World(
        service("l4", min_replicas=0, scale_to_zero_after_seconds=600.0),
        rate=0.5,
        ordered={"l4": 1},
    )
    world.run(400)
    world.rate, quiet_at = 0.0, world.now
    world.run(1200)
    assert world.counts == {}
    assert world.changes[-1][2].startswith("Zero")
    assert world.changes[-1][0] - quiet_at >= 600
    world.num_waiting = 1
    world.run(10)
    assert world.counts == {"l4": 1}
    assert world.changes[-1][2].startswith("Wake")


def at_zero() -> World:
    """Nobody has asked for long, and none is left."""
    changes = {"min_replicas": 0, "scale_to_zero_after_seconds": 60.0}
    world = World(service("l4", **changes), rate=0.5, ordered={"l4": 1})
    world.run(400)
    world.rate = 0.0
    world.run(900)
    assert world.counts == {}
    return world


def test_a_restart_wakes_nobody() -> None:
    world = at_zero()
    world.memory = ScalingMemory()
    world.changes.clear()
    world.run(60)
    assert world.changes == []
    world.num_waiting = 1
    assert world.step().action == "Wake"


@pytest.mark.parametrize("back", [1.0, 300.0, 3600.0])
@pytest.mark.parametrize("is_between", [False, True])
def test_a_clock_that_goes_back_wakes_nobody(back: float, *, is_between: bool) -> None:
    world = at_zero()
    world.changes.clear()
    world.now -= back
    world._since -= back
    if is_between:  # seen first when another service's spec has changed
        other = replace(world.inputs().services[0], key="team/other")
        both = replace(world.inputs(), services=(*world.inputs().services, other))
        _, world.memory = decide(both, world.memory, changed=["team/other"])
    world.run(60)
    assert world.changes == []


def test_without_scale_to_zero_after_one_stays() -> None:
    world = World(service("l4", min_replicas=0), rate=0.0, ordered={"l4": 1})
    world.run(3600)
    assert world.counts == {"l4": 1}


def test_one_request_an_hour_needs_one_replica() -> None:
    world = World(service("l4", "h100"), rate=1 / 3600, ordered={"l4": 1})
    world.run(3900)
    assert world.counts == {"l4": 1}
    assert world.changes == []
