"""Replicas that lose their nodes while no gateway is heard: as much stands in for them."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decision import ScalingMemory
from tests.unit.scaling.worlds import World, service


def unheard(*gpus: str, num: int = 4, **changes: object) -> World:
    """A world whose L4 carry all that is asked when nothing is heard any more."""
    world = World(service("l4", *gpus, **changes), rate=2.05 * num, ordered={"l4": num})
    world.run(60)
    world.is_gateway_heard = False
    world.run(30)
    assert world.changes == []
    return world


def lose_nodes(world: World, num: int) -> None:
    """Let so many L4 have no node any more."""
    world.nodes = {"l4": world.ordered["l4"] - num}
    gone = [one.name for one in world.replicas[:num]]
    world.replicas = [
        replace(one, is_ready=False, is_scheduled=False) if one.name in gone else one
        for one in world.replicas
    ]


def carried(world: World, **counts: int) -> float:
    """Requests per second of these at the target."""
    assert world.last is not None
    able = {name: one.requests_per_second for name, one in world.last.accelerators.items()}
    return sum(count * (able[name] or 0.0) for name, count in counts.items())


def test_others_carry_what_was_carried_and_no_more() -> None:
    world = unheard("a10g")
    lose_nodes(world, 4)
    world.run(600)
    num = world.ordered["a10g"]
    assert world.ordered == {"l4": 4, "a10g": num}
    assert carried(world, a10g=num - 1) < carried(world, l4=4) <= carried(world, a10g=num)
    assert len(world.changes) == 1
    assert "nothing is heard" in world.changes[0][2]


def test_what_serves_on_counts() -> None:
    world = unheard("a10g")
    lose_nodes(world, 2)
    world.run(600)
    num = world.ordered["a10g"]
    assert carried(world, a10g=num - 1) < carried(world, l4=2) <= carried(world, a10g=num)


@pytest.mark.parametrize(
    ("gpu", "left"), [("a10g", {"l4": 0, "a10g": 4}), ("h100", {"l4": 3, "h100": 1})]
)
def test_at_the_most_replicas_they_come_in_the_place_of_those_that_wait(
    gpu: str, left: dict[str, int]
) -> None:
    world = unheard(gpu, max_replicas=4)
    lose_nodes(world, 4)
    world.run(600)
    assert world.ordered == left


def test_of_a_memory_that_is_new_they_are_the_minimum() -> None:
    world = unheard("a10g", min_replicas=2)
    world.memory = ScalingMemory()
    lose_nodes(world, 4)
    world.run(600)
    assert world.ordered == {"l4": 4, "a10g": 2}


def test_one_that_does_as_much_is_enough() -> None:
    world = unheard("h100")
    lose_nodes(world, 4)
    world.run(600)
    assert world.ordered == {"l4": 4, "h100": 1}
