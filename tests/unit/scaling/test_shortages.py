"""When a replica that waits means that there are no GPUs, and when that is forgotten."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decision import ServiceMemory, Shortage
from quire_operator.scaling.fleet import see_fleet
from quire_operator.scaling.inputs import (
    GpuStock,
    Replica,
    ScalingInputs,
    ServiceInputs,
    ServiceLevel,
)
from quire_operator.scaling.rooms import Rooms
from quire_operator.scaling.shortages import Shortages
from tests.unit.scaling.worlds import World, accelerator, capability, service

NOW = 10_000.0
PRODUCT = "NVIDIA-L4"
THERE = Replica(name="a", accelerator="l4")
WAITS = Replica(
    name="b", accelerator="l4", is_scheduled=False, is_ready=False, waiting_since=NOW - 200.0
)


def short(one: ServiceInputs, **known: float) -> set[str]:
    before = {name: Shortage(since=since, until=since + 600.0) for name, since in known.items()}
    memory = ServiceMemory(since=0.0, last_request_at=0.0, short=before)
    shortages = Shortages(ScalingInputs(now=NOW, services=(one,)))
    return set(shortages.limiting(shortages.find(one, memory)))


def waiting(seconds: float) -> ServiceInputs:
    """A service with a replica that has a node, and one that has waited for one."""
    waits = replace(WAITS, waiting_since=NOW - seconds)
    return replace(service("l4"), replicas=(THERE, waits), ordered={"l4": 2})


@pytest.mark.parametrize(("seconds", "found"), [(100.0, set()), (180.0, {"l4"})])
def test_who_waits_longer_than_the_timeout_is_short(seconds: float, found: set[str]) -> None:
    assert short(waiting(seconds)) == found


def test_what_was_short_is_tried_again_after_a_while() -> None:
    assert short(waiting(0.0), l4=NOW - 599.0) == {"l4"}
    assert short(waiting(0.0), l4=NOW - 600.0) == set()


def test_a_short_time_in_the_future_is_not_believed() -> None:
    assert short(waiting(0.0), l4=NOW + 50.0) == set()


@pytest.mark.parametrize(("ordered", "found"), [(1, set()), (2, {"l4"})])
def test_a_replica_of_a_rollout_beside_those_ordered_is_no_sign(
    ordered: int, found: set[str]
) -> None:
    rolling = replace(service("l4"), replicas=(THERE, WAITS), ordered={"l4": ordered})
    assert short(rolling) == found


def test_a_suspended_service_remembers_no_shortage() -> None:
    suspended = replace(service("l4"), is_suspended=True, ordered={"l4": 0})
    assert short(suspended, l4=NOW - 5.0) == set()


def test_where_something_runs_what_is_short_is_not_tried() -> None:
    stopped = replace(service("l4", "h100"), ordered={"l4": 0, "h100": 0})
    assert short(stopped, l4=NOW - 5.0) == {"l4"}
    serving = replace(stopped, ordered={"l4": 1, "h100": 0}, replicas=(THERE,))
    assert short(serving, l4=NOW - 5.0, h100=NOW - 5.0) == {"l4", "h100"}


@pytest.mark.parametrize(
    "others",
    [
        {"name": "other", "short_since": 999_990.0},
        {"name": "other", "max_replicas": 0},
        {"name": "other", "expected": capability("l4", "none")},
        {"name": "other", "unusable_because": "the model does not fit"},
    ],
    ids=["short", "forbidden", "slow", "unusable"],
)
def test_where_nothing_runs_what_is_short_is_tried_if_nothing_else_can_be(
    others: dict[str, object],
) -> None:
    short_one = accelerator("h100", short_since=999_990.0)
    slo = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.03)
    made = service(accelerators=(accelerator("t4", **others), short_one), slo=slo)
    world = World(made, rate=0.3)
    decisions = [world.step() for _ in range(20)]
    assert sum(world.ordered.values()) == 1
    assert sum(one.is_change for one in decisions) == 1


class Shared:
    """A service that is short of a GPU of which another one has two."""

    def __init__(self, num_gpus: int = 3) -> None:
        l4 = accelerator("l4", products=(PRODUCT,))
        made = replace(service("l4"), accelerators=(l4,), ordered={"l4": 1})
        self.now = NOW
        self.service = replace(made, key="team/first", replicas=(THERE,))
        others = tuple(Replica(name=f"o{at}", accelerator="l4") for at in range(2))
        self.other = replace(
            made, key="team/second", min_replicas=0, replicas=others, ordered={"l4": 2}
        )
        self.num_gpus = num_gpus
        known = {"l4": Shortage(since=NOW - 5.0, until=NOW + 595.0)}
        self.memory = ServiceMemory(since=0.0, last_request_at=0.0, short=known)

    def look(self) -> tuple[int, bool]:
        """GPUs that the first may have in all, and whether no more may be asked for."""
        self.now += 5.0
        both = (self.service, self.other)
        stock = (GpuStock(product=PRODUCT, num_gpus=self.num_gpus),)
        inputs = ScalingInputs(now=self.now, services=both, stock=stock)
        short = Shortages(inputs).find(self.service, self.memory)
        self.memory = replace(self.memory, short=short)
        assert set(short) == {"l4"}
        rooms = Rooms(inputs, {self.service.key: short, self.other.key: {}})
        is_blocked = "l4" in see_fleet(self.service, short).blocked
        return rooms.of(self.service)[0].most, is_blocked

    def wait(self) -> None:
        """The first asks for one more, which finds no node."""
        waits = replace(WAITS, waiting_since=self.now)
        self.service = replace(self.service, replicas=(THERE, waits), ordered={"l4": 2})


def test_a_gpu_that_another_service_gives_back_may_be_used_at_once() -> None:
    shared = Shared()
    assert shared.look() == shared.look() == (1, True)
    first, second = shared.other.replicas
    shared.other = replace(shared.other, replicas=(replace(first, is_ending=True), second))
    assert shared.look() == (1, True), "it has its GPU until it is gone"
    shared.other = replace(shared.other, replicas=(second,), ordered={"l4": 1})
    assert shared.look() == (2, False)
    shared.other = replace(shared.other, replicas=(first, second), ordered={"l4": 2})
    assert shared.look() == (1, True), "the other has it again"


def test_what_a_service_gives_back_itself_is_all_that_it_gets_again() -> None:
    shared = Shared()
    assert shared.look() == (1, True)
    shared.service = replace(shared.service, replicas=(), ordered={"l4": 0})
    shared.service = replace(
        shared.service, accelerators=(*shared.service.accelerators, accelerator("h100"))
    )
    assert shared.look() == (1, False)


def test_a_node_that_comes_may_be_used_and_one_that_goes_changes_nothing() -> None:
    shared = Shared()
    shared.look()
    shared.num_gpus = 1
    assert shared.look() == (1, True)
    shared.num_gpus = 3
    assert shared.look() == (3, False)


def test_free_gpus_that_were_of_no_use_are_none() -> None:
    shared = Shared(num_gpus=5)  # two of these are nobody's of ours, and yet none was found
    assert shared.look() == shared.look() == (1, True)


def test_what_is_freed_is_first_of_all_for_the_one_that_waits() -> None:
    shared = Shared()
    shared.wait()
    shared.now += 200.0
    shared.look()
    assert shared.look() == (2, True), "what waits may wait on"
    shared.other = replace(shared.other, replicas=(), ordered={"l4": 0})
    assert shared.look() == (3, False)
    found = replace(WAITS, is_scheduled=True, waiting_since=None)
    shared.service = replace(shared.service, replicas=(THERE, found))
    assert shared.look() == (3, False), "one of the two is left"


def test_who_waits_too_long_for_what_was_freed_is_short_anew() -> None:
    shared = Shared()
    shared.look()
    shared.other = replace(shared.other, replicas=shared.other.replicas[1:], ordered={"l4": 1})
    assert shared.look() == (2, False)
    shared.wait()
    assert shared.look() == (2, False)
    shared.now += 200.0
    assert shared.look() == (2, True)
    shared.service = replace(shared.service, replicas=(THERE,), ordered={"l4": 1})
    assert shared.look() == (1, True)
    shared.other = replace(shared.other, replicas=(), ordered={"l4": 0})
    assert shared.look() == (2, False)


def test_in_a_decision_freed_gpus_are_used_at_once() -> None:
    world = World(service("l4", "h100"), rate=1.5, ordered={"l4": 1}, nodes={"l4": 1})
    product = world.service.accelerators[0].products[0]
    world.stock = (GpuStock(product=product, num_gpus=1),)
    world.run(30)
    world.rate = 4.0
    while world.ordered["h100"] == 0:
        world.step()
    assert world.last is not None
    assert set(world.last.short_since) == {"l4"}
    world.rate = 30.0
    world.run(20)
    assert world.ordered["l4"] == 2, "what waits, and no more"
    world.nodes, world.stock = {}, (GpuStock(product=product, num_gpus=9),)
    world.rate = 40.0
    world.run(60)
    assert world.ordered["l4"] > 2
    assert world.last.short_since == {}
