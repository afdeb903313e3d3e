"""Accelerators that leave the spec: their replicas serve until others do."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.inputs import AcceleratorInputs
from tests.unit.scaling.worlds import World, accelerator, service


def busy(*gpus: str, **changes: object) -> World:
    """Four replicas that are needed."""
    world = World(service(*(gpus or ("l4",)), **changes), rate=8.0, ordered={"l4": 4})
    world.run(400)
    assert world.counts == {"l4": 4}
    return world


def run_until_gone(world: World, *, least: int) -> None:
    """Until nothing is left of what leaves; never are fewer ready than that."""
    for _ in range(240):
        if not world.leaving:
            return
        world.step()
        assert world.num_serving >= least
    raise AssertionError(world.last)


@pytest.mark.parametrize(
    "others",
    [
        (accelerator("h100"),),
        (accelerator("l4", name="cheap"),),
        (accelerator("a10g"), accelerator("h100")),
    ],
)
def test_what_leaves_serves_until_as_much_as_the_load_needs_is_ready(
    others: tuple[AcceleratorInputs, ...],
) -> None:
    world = busy()
    world.change(*others)
    world.changes.clear()
    assert world.step().leaving == {"l4": 4}
    at, first, reason = world.changes[0]
    assert at == world.now
    assert "l4 left the spec" in reason
    needed = world.counts
    world.run(30)
    assert (world.leaving, world.counts) == ({"l4": 4}, needed), "it is the same load"
    run_until_gone(world, least=min(sum(first.values()), 4))
    assert world.counts == needed
    assert world.last is not None
    assert world.last.reason == "l4 left the spec, and others serve in its place"
    assert world.last.is_change
    world.run(60)
    assert world.counts == needed


def test_what_stays_of_the_spec_grows_before_the_busy_one_goes() -> None:
    world = busy("l4", "a10g")
    world.ordered["a10g"] = 1
    world._add("a10g", is_ready=True)
    world.change(accelerator("a10g"))
    world.step()
    assert world.leaving == {"l4": 4}
    assert world.counts["a10g"] > 1
    run_until_gone(world, least=5)


def test_what_comes_back_before_others_are_ready_runs_on() -> None:
    world = busy()
    there = [one.name for one in world.replicas]
    world.change(accelerator("h100"))
    world.run(20)
    world.change(accelerator("l4"))
    world.run(20)
    assert (world.counts, world.leaving) == ({"l4": 4}, {})
    assert [one.name for one in world.replicas] == there


def test_a_restart_in_the_middle_takes_nothing_away() -> None:
    world = busy()
    world.change(accelerator("h100"))
    world.memory = ScalingMemory()
    run_until_gone(world, least=1)
    needed = world.counts
    world.run(600)
    assert sum(world.counts.values()) <= sum(needed.values())


def test_where_nothing_is_heard_what_leaves_stays() -> None:
    world = busy()
    world.change(accelerator("h100"))
    world.is_gateway_heard = False
    world.run(600)
    assert world.leaving == {"l4": 4}


def test_for_want_of_other_gpus_they_are_handed_over_one_by_one() -> None:
    world = busy()
    world.change(accelerator("l4", name="new", provision_timeout_seconds=30.0))
    for _ in range(240):
        world.nodes = {"new": 4 - sum(one.accelerator == "l4" for one in world.replicas)}
        world.step()
        assert world.num_serving >= 3
    assert (world.counts, world.leaving) == ({"new": 4}, {})


def test_what_waits_for_other_gpus_in_vain_takes_nothing_away() -> None:
    world = busy()
    world.change(accelerator("h100", provision_timeout_seconds=30.0))
    world.nodes = {"h100": 0}
    world.run(1200)
    assert world.leaving == {"l4": 4}


@pytest.mark.parametrize("num", [1, 3])
def test_the_last_that_serves_does_not_go_for_what_finds_no_node(num: int) -> None:
    world = World(service("l4"), rate=0.5, ordered={"l4": num})
    world.run(100)
    new = accelerator("l4", name="new", gpus_per_replica=2, provision_timeout_seconds=30.0)
    world.change(new)
    world.nodes = {"new": 0}
    for _ in range(240):
        world.step()
        assert world.num_serving >= 1
    assert world.leaving == {"l4": 1}
    world.nodes = {"new": 9}
    run_until_gone(world, least=1)


def test_what_leaves_and_serves_nobody_goes_at_once() -> None:
    world = busy()
    world.replicas[0] = replace(world.replicas[0], is_ready=False, is_failing=True)
    world.change(accelerator("h100"))
    assert world.step().leaving == {"l4": 3}


def test_what_leaves_stays_while_all_nodes_are_missed() -> None:
    world = busy()
    world.change(accelerator("h100"))
    world.replicas = [replace(one, is_ready=False, is_missed=True) for one in world.replicas]
    assert world.look().services[0].leaving == {"l4": 4}


def test_without_load_one_comes_and_all_go() -> None:
    world = busy(min_replicas=0, scale_to_zero_after_seconds=60.0)
    world.rate = 0.0
    world.change(accelerator("h100"))
    world.run(1200)
    assert (world.counts, world.leaving) == ({}, {})


def test_what_is_suspended_leaves_at_once() -> None:
    world = busy()
    world.change(accelerator("h100"))
    world.service = replace(world.service, is_suspended=True)
    decided = world.look().services[0]
    assert decided.leaving == {}


def test_where_nothing_is_known_as_many_come_as_there_were() -> None:
    world = busy()
    world.change(accelerator("l4", name="other", expected=None))
    world.step()
    assert world.counts == {"other": 4}
    run_until_gone(world, least=4)
