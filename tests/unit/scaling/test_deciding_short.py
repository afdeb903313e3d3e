"""What is decided where nodes are short, replicas fail, or too little is allowed."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from quire_operator.scaling.inputs import GpuStock, ServiceLevel
from tests.unit.scaling.worlds import World, accelerator, capability, codes, service


def test_what_finds_no_node_is_stood_in_for_until_the_fallback_is_ready() -> None:
    world = World(
        service("l4", "h100"), rate=1.5, ordered={"l4": 1}, nodes={"l4": 1}, start_seconds=120
    )
    world.run(30)
    world.rate = 4.0
    world.run(60)
    assert world.ordered["l4"] > 1
    assert world.ordered["h100"] == 0
    waiting = world.ordered["l4"]
    world.run(180)
    assert world.ordered == {"l4": waiting, "h100": 1}
    assert "ShortOfGpus" in codes(world)
    assert world.last is not None
    assert set(world.last.short_since) == {"l4"}
    told = next(one.message for one in world.last.findings if one.code == "ShortOfGpus")
    next_try = world.memory.services[world.last.key].short["l4"].until
    assert f"{datetime.fromtimestamp(next_try, UTC):%Y-%m-%dT%H:%M:%SZ}" in told
    world.run(60)
    assert world.ordered["l4"] == waiting
    world.run(420)
    assert world.ordered["l4"] <= 1


def test_where_the_nodes_of_all_are_gone_others_stand_in_at_once() -> None:
    world = World(service("l4", "h100"), rate=3.0, ordered={"l4": 2})
    world.run(300)
    before = world.ordered["l4"]
    world.nodes = {"l4": 0}
    world.replicas = [replace(one, is_ready=False, is_scheduled=False) for one in world.replicas]
    world.num_waiting, world.oldest_seconds = 100, 10.0
    world.run(20)
    assert world.ordered == {"l4": before, "h100": 1}
    assert "nothing serves" in world.changes[-1][2]
    assert "ShortOfGpus" in codes(world)
    world.run(40)
    assert world.ordered == {"l4": before, "h100": 1}


def test_a_first_replica_may_wait_for_its_node_as_long_as_the_spec_says() -> None:
    world = World(service("l4", "h100", min_replicas=0), ordered={"l4": 0}, nodes={"l4": 0})
    world.num_waiting, world.oldest_seconds = 3, 1.0
    world.run(150)
    assert world.counts == {"l4": 1}
    world.run(60)
    assert world.counts == {"l4": 1, "h100": 1}


def test_a_node_that_comes_at_last_is_used() -> None:
    world = World(service("l4"), rate=4.0, ordered={"l4": 1}, nodes={"l4": 1})
    world.run(400)
    wanted = world.ordered["l4"]
    assert wanted > 1
    world.nodes = {}
    world.run(200)
    assert sum(one.is_ready for one in world.replicas) == wanted


def test_replicas_that_fail_are_replaced_by_others() -> None:
    world = World(service("l4"), rate=3.0, ordered={"l4": 2})
    world.run(60)
    before = world.ordered["l4"]
    world.replicas[0] = replace(world.replicas[0], is_failing=True, is_ready=False)
    world.run(30)
    assert world.ordered["l4"] == before + 1


def test_where_all_fail_no_more_are_asked_for() -> None:
    world = World(service("l4", "h100"), rate=3.0, ordered={"l4": 2})
    world.replicas = [replace(one, is_failing=True, is_ready=False) for one in world.replicas]
    world.run(60)
    assert world.ordered == {"l4": 2, "h100": 1}


def test_too_little_is_allowed_and_that_is_said() -> None:
    world = World(service("l4", max_cost_per_hour=2.0), rate=20.0, ordered={"l4": 1})
    world.run(600)
    assert world.counts == {"l4": 2}
    assert "Infeasible" in codes(world)
    settled = len(world.changes)
    world.run(1800)
    assert len(world.changes) == settled


def test_no_accelerator_can_be_scheduled() -> None:
    world = World(service("l4"), rate=2.0, nodes={"l4": 0}, ordered={"l4": 0})
    world.stock = (GpuStock(product="NVIDIA-L4", num_gpus=0, is_final=True),)
    world.run(600)
    assert world.counts == {}
    assert "Infeasible" in codes(world)


@pytest.mark.parametrize(
    ("l4", "h100", "most"),
    [(0.8001, 120.0, 1.6001), (120.5001, 14_750.0, 241.0), (0.8, 120.0, 2.4)],
)
def test_the_most_that_may_be_paid_is_kept_to_the_last_digit(
    l4: float, h100: float, most: float
) -> None:
    accelerators = (accelerator("l4", cost_per_hour=l4), accelerator("h100", cost_per_hour=h100))
    made = service(accelerators=accelerators, max_cost_per_hour=most)
    world = World(made, rate=10.0, ordered={"l4": 1})
    world.run(300)
    assert world.cost <= most + 1e-9
    assert world.cost + l4 > most, "and all of it is used"
    assert all(reason.startswith("Up") for _, _, reason in world.changes)


@pytest.mark.parametrize(
    "changes",
    [{"expected": None}, {"expected": capability("l4", "none")}, {"unusable_because": "no room"}],
    ids=["unknown", "slow", "unusable"],
)
def test_what_can_serve_nobody_and_has_no_price_is_paid_for(changes: dict[str, object]) -> None:
    slow = accelerator("l4", cost_per_hour=None, **changes)
    slo = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.03)
    dear = accelerator("h100", cost_per_hour=7.5)
    made = service(accelerators=(slow, dear), slo=slo, max_cost_per_hour=10.0)
    world = World(made, rate=2.0, ordered={"l4": 10, "h100": 1})
    found = world.step()
    assert sum(found.replicas.values()) == 1
    assert "maxCostPerHour (10) pays for" in found.reason


@pytest.mark.parametrize("nodes", [{}, {"h100": 0}])
def test_at_the_most_replicas_what_serves_does_not_go_for_what_is_only_ordered(
    nodes: dict[str, int],
) -> None:
    seen = service("l4", "h100", max_replicas=2)
    world = World(seen, rate=5.0, ordered={"l4": 2}, nodes=nodes)
    for _ in range(360):
        world.step()
        assert world.num_serving >= 2
    assert len(world.changes) <= 2


def test_at_the_most_replicas_more_able_ones_come_one_for_one() -> None:
    seen = service("l4", "h100", max_replicas=6)
    world = World(seen, rate=20.0, ordered={"l4": 6})
    while not any(one.accelerator == "h100" and one.is_ready for one in world.replicas):
        world.step()
        assert world.num_serving >= 5
        assert world.now < 1_001_800.0
    assert sum(world.counts.values()) <= 6
