"""Engines that say nothing: kept, not counted on, and stood in for."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.hearing import hear, measure_pressure
from quire_operator.scaling.inputs import ScalingInputs
from tests.unit.scaling.worlds import World, service


def busy(num: int = 4) -> World:
    """A world whose replicas are all needed."""
    world = World(service("l4"), rate=2.05 * num, ordered={"l4": num})
    world.run(600)
    assert world.counts == {"l4": num}
    world.changes = []
    return world


def silence(world: World, num: int) -> None:
    """Let so many of the replicas say nothing from now on."""
    world.silent_since = dict.fromkeys([one.name for one in world.replicas[:num]], world.now)


def test_others_stand_in_for_those_that_are_silent_and_go_when_they_speak() -> None:
    world = busy()
    silence(world, 2)
    world.run(15)
    assert world.changes == [], "it may be a moment only"
    world.run(15)
    assert world.counts == {"l4": 6}
    assert world.last is not None
    messages = [one.message for one in world.last.findings if one.code == "MetricsStale"]
    assert "2 that have been silent for long" in messages[0]
    world.run(900)
    assert world.counts == {"l4": 6}, "nothing more comes, and nothing goes for silence"
    assert len(world.changes) == 1
    world.silent_since = {}
    world.run(400)
    assert world.counts == {"l4": 4}
    assert world.changes[1][2].startswith("Down")


def test_the_only_replica_is_stood_in_for() -> None:
    world = busy(1)
    silence(world, 1)
    world.run(60)
    assert world.counts == {"l4": 2}


def test_where_all_are_silent_there_are_never_more_than_twice_as_many() -> None:
    world = busy()
    world.are_engines_heard = False
    world.run(3600)
    assert 4 < world.ordered["l4"] <= 8
    assert not any("Down" in reason for _, _, reason in world.changes)


def test_silence_of_what_is_not_needed_changes_nothing() -> None:
    world = busy()
    world.rate = 1.0
    silence(world, 2)
    world.run(1800)
    assert world.counts == {"l4": 4}


def test_nobody_stands_in_where_nobody_asks_and_somebody_does_as_soon_as_one_asks() -> None:
    world = World(service("l4"), rate=0.0, ordered={"l4": 1})
    world.are_engines_heard = False
    world.run(900)
    assert world.changes == []
    world.rate = 0.2
    world.run(60)
    assert world.counts == {"l4": 2}


def test_without_a_gateway_nobody_could_hear_them() -> None:
    world = busy()
    world.is_gateway_heard = world.are_engines_heard = False
    world.run(600)
    world.is_gateway_heard = True
    world.run(15)
    assert world.changes == []


def test_after_a_restart_nobody_is_taken_to_be_silent_at_once() -> None:
    world = busy()
    world.are_engines_heard = False
    for _ in range(10):
        world.memory = ScalingMemory()
        world.run(15)
    assert world.changes == []


@pytest.mark.parametrize(("num_silent", "share"), [(0, 1.0), (1, 0.75), (2, 0.5)])
def test_pressure_speaks_for_those_that_are_counted_on(num_silent: int, share: float) -> None:
    world = busy()
    silence(world, num_silent)
    world.now += 60.0
    seen = replace(
        world.service,
        replicas=tuple(map(world._seen, world.replicas)),
        gateways=(world.gateway(),),
    )
    heard = hear(seen, {}, ScalingInputs(now=world.now, services=(seen,)))
    assert len(heard.silent) == num_silent
    found = measure_pressure(seen, heard, {"l4": 1.0})
    assert found is not None
    whole = found.value / seen.pressure.target * 4
    assert found.requests_per_second == pytest.approx(share * whole)


def test_the_last_that_serves_stays_though_silent_where_maxreplicas_has_no_room_for_another() -> (
    None
):
    world = World(service("l4", "h100", max_replicas=1), rate=3.0, ordered={"l4": 1})
    world.run(600)
    silence(world, 1)
    for _ in range(60):
        world.step()
        assert world.num_serving == 1
    assert world.counts == {"l4": 1}
