"""minReplicas: kept whatever fails or finds no node, and whoever is more important."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from quire_engine.profiles.gpus import GPUS
from quire_operator.scaling.clamping import Limit, Limits, spare
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import Decision, ScalingMemory
from quire_operator.scaling.inputs import GpuStock, Replica, ScalingInputs, ServiceInputs
from quire_operator.scaling.mix import Bounds
from tests.unit.scaling.worlds import World, accelerator, service

L4 = GPUS["l4"].products[0]


def fail_the_newest(world: World) -> None:
    """The newest L4 ends again and again, as long as there are others."""
    there = [one for one in world.replicas if one.accelerator == "l4"]
    for one in there[1:][-1:]:
        at = world.replicas.index(one)
        world.replicas[at] = replace(one, is_failing=True, is_ready=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: service("l4", min_replicas=2),
        lambda: service("l4", accelerators=(accelerator("l4", min_replicas=2),)),
        lambda: service("l4", "h100", min_replicas=2),
    ],
    ids=["service", "accelerator", "mixed"],
)
def test_what_fails_is_not_given_up_below_the_minimum(make: Callable[[], ServiceInputs]) -> None:
    world = World(make(), rate=0.5, ordered={"l4": 2}, start_seconds=10)
    while world.now < 1_000_700.0:
        fail_the_newest(world)
        world.step()
    assert world.changes == []


def test_above_the_minimum_what_fails_goes() -> None:
    world = World(service("l4", min_replicas=1), rate=0.5, ordered={"l4": 2})
    while world.now < 1_000_400.0:
        fail_the_newest(world)
        world.step()
    assert [ordered for _, ordered, _ in world.changes] == [{"l4": 1}]


@pytest.mark.parametrize("most", [3, 30])
def test_what_finds_no_node_is_stood_in_for_up_to_the_minimum(most: int) -> None:
    made = service("l4", "h100", min_replicas=3, max_replicas=most)
    world = World(made, rate=0.5, ordered={"l4": 3}, nodes={"l4": 1, "h100": 2})
    world.replicas[1:] = [
        replace(one, is_ready=False, is_scheduled=False) for one in world.replicas[1:]
    ]
    for _ in range(110):
        assert sum(world.step().replicas.values()) >= 3
    assert sum(one.is_ready for one in world.replicas) == 3
    assert world.counts == {"l4": 1, "h100": 2}


class Rivals:
    """Two L4 for two services of which one is more important, and H100 for the other."""

    def __init__(self, *, high_minimum: int = 1) -> None:
        self.low = World(service("l4", "h100", key="team/low"), rate=0.5, ordered={"l4": 1})
        self.high = World(
            service("l4", key="team/high", priority=10, min_replicas=high_minimum),
            rate=1.0,
            ordered={"l4": 1},
        )
        self.memory = ScalingMemory()
        self.num_low_ready: list[int] = []

    def run(self, seconds: float) -> None:
        """Decide both together, for so long."""
        until = self.low.now + seconds
        while self.low.now < until:
            decision = self.step()
            for world in (self.low, self.high):
                world._apply(decision.of(world.service.key))
            self.num_low_ready.append(sum(one.is_ready for one in self.low.replicas))

    def step(self) -> Decision:
        """Decide once."""
        for world, rival in ((self.low, self.high), (self.high, self.low)):
            world.now += 5.0
            world._arrive()
            taken = sum(one.is_scheduled for one in rival.replicas if one.accelerator == "l4")
            world.nodes = {"l4": 2 - taken, "h100": 1}
            world._start()
        inputs = ScalingInputs(
            now=self.low.now,
            services=(*self.low.inputs().services, *self.high.inputs().services),
            stock=(GpuStock(product=L4, num_gpus=2),),
        )
        decision, self.memory = decide(inputs, self.memory)
        return decision


def test_who_waits_for_gpus_that_are_not_there_takes_nobodys_minimum() -> None:
    rivals = Rivals()
    rivals.run(400)
    rivals.high.rate = 6.0
    rivals.run(600)
    assert rivals.high.ordered["l4"] > 1, "it is waited for a node"
    assert rivals.low.counts == {"l4": 1}
    assert min(rivals.num_low_ready) == 1


def test_who_must_leave_its_minimum_to_others_goes_when_its_stand_in_serves() -> None:
    rivals = Rivals(high_minimum=2)
    rivals.run(800)
    assert rivals.low.counts == {"h100": 1}
    assert sum(one.is_ready for one in rivals.high.replicas) == 2
    assert min(rivals.num_low_ready) == 1


def test_a_stand_in_that_cannot_come_is_not_waited_for() -> None:
    there = Replica(name="l4-1", accelerator="l4")
    waits = replace(there, name="h100-1", accelerator="h100", is_scheduled=False, is_ready=False)
    low = replace(
        service("l4", "h100", key="team/low"),
        ordered={"l4": 1, "h100": 1},
        replicas=(there, replace(waits, waiting_since=0.0)),
    )
    high = service("l4", key="team/high", priority=1, min_replicas=1, ordered={"l4": 0})
    stock = (GpuStock(product=L4, num_gpus=1, is_final=True),)
    inputs = ScalingInputs(now=10_000.0, services=(low, high), stock=stock)
    found = decide(inputs, ScalingMemory())[0]
    assert found.of("team/low").replicas["l4"] == 0
    assert found.of("team/high").replicas == {"l4": 1}


def test_from_none_what_is_short_is_tried_in_the_next_round_though_nothing_is_heard() -> None:
    l4 = accelerator("l4", short_since=9_990.0)
    made = service("l4", accelerators=(l4,), min_replicas=2, ordered={"l4": 0})
    inputs = ScalingInputs(now=10_000.0, services=(made,))

    first, memory = decide(inputs, ScalingMemory())
    second, _ = decide(replace(inputs, now=10_005.0), memory)

    assert first.of(made.key).replicas == {"l4": 0}
    assert second.of(made.key).replicas == {"l4": 2}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_where_bounds_are_lowered_what_serves_stays_before_what_is_on_its_way(most: int) -> None:
    """As during a move to cheaper GPUs."""
    world = World(service("l4", "h100"), rate=2.0, ordered={"h100": 1}, start_seconds=300)
    world.ordered["l4"] = 3
    for _ in range(3):
        world._add("l4")
    world.run(5)
    world.service = replace(world.service, max_replicas=most)
    world.step()
    assert world.counts.get("h100") == 1
    assert sum(world.counts.values()) == most
    for _ in range(20):
        world.step()
        assert world.num_serving >= 1


def test_an_accelerators_own_minimum_takes_nobody_the_last_that_serves() -> None:
    """At maxReplicas what it asks for has no room beside what serves, and may never start."""
    kinds = (accelerator("t4", min_replicas=1), accelerator("l4"))
    seen = replace(service("t4", "l4", max_replicas=1), accelerators=kinds)
    world = World(seen, rate=0.5, ordered={"l4": 1})
    world.run(400)
    assert world.counts == {"l4": 1}
    assert world.last is not None
    assert any(
        one.code == "Infeasible" and "minReplicas" in one.message for one in world.last.findings
    )
    world.service = replace(world.service, max_replicas=2)
    num_serving = []
    for _ in range(100):
        world.step()
        num_serving.append(world.num_serving)
    assert world.counts == {"t4": 1}
    assert min(num_serving) == 1


class CountedLimits(Limits):
    """Counts how often replicas are fitted in."""

    num_clamped = 0

    def clamp(self, replicas: Mapping[str, int]) -> dict[str, int]:
        CountedLimits.num_clamped += 1
        return super().clamp(replicas)


def test_large_minimums_are_not_lowered_one_by_one_where_that_helps_nobody() -> None:
    limits = (
        Limit(name="h100", cost=7.5, lowest=500, highest=500),
        Limit(name="l4", cost=0.8, lowest=0, highest=0),
    )
    counted = CountedLimits(limits=limits, bounds=Bounds(fewest=500, most=500))
    CountedLimits.num_clamped = 0
    assert spare(counted, {"h100": 0, "l4": 1}) is counted
    assert CountedLimits.num_clamped < 5
