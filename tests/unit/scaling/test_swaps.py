"""What comes in the place of what runs where bounds leave no room for both."""

from dataclasses import replace

from tests.unit.scaling.worlds import World, accelerator, service


def test_failing_replicas_are_not_replaced_by_their_like() -> None:
    """One serves, and two that fail take up all of maxReplicas."""
    world = World(service("l4", max_replicas=3), rate=3.9, ordered={"l4": 3})
    serving, *failing = world.replicas
    world.replicas = [serving, *(replace(one, is_failing=True, is_ready=False) for one in failing)]
    world.run(900)
    assert world.changes == []


def test_what_was_short_is_not_tried_again_in_the_place_of_what_serves() -> None:
    """A10Gs would do more for as much, and two of them have nodes."""
    a10g = accelerator("a10g", cost_per_hour=0.363)
    seen = service(accelerators=(a10g, accelerator("a100-80")), max_cost_per_hour=8.1)
    seen = replace(seen, max_replicas=60)
    there = {"a10g": 2, "a100-80": 2}
    world = World(seen, rate=80.0, ordered=there, nodes={"a10g": 2})
    world.run(1800)
    assert any(counts["a10g"] > 2 for _, counts, _ in world.changes), "it was tried once"
    assert world.ordered == there
    num = len(world.changes)
    world.run(3600)
    assert len(world.changes) == num
