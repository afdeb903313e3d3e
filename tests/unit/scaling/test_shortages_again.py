"""GPUs that are found short again and again: tried more and more seldom, and when that ends."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory, ServiceMemory, Shortage
from quire_operator.scaling.inputs import GpuStock, Replica, ScalingInputs, ServiceInputs
from quire_operator.scaling.keeping import rejuvenate
from quire_operator.scaling.shortages import Shortages, pardon
from tests.unit.scaling.worlds import KEY, World, accelerator, service

NOW = 10_000.0
PRODUCT = "NVIDIA-L4"
L4_RATE = 2.15
"""Requests per second of one L4 at the target, or somewhat less."""


class Short:
    """A service that has some L4 nodes, and tries for one more now and then."""

    def __init__(self) -> None:
        l4 = accelerator("l4", products=(PRODUCT,))
        made = service(accelerators=(l4, accelerator("h100")))
        self.service = replace(made, ordered={"l4": 0, "h100": 1})
        self.other = replace(made, key="team/other", ordered={"l4": 2}, replicas=have(2, "o"))
        self.num_gpus = 6
        self.memory = ServiceMemory(since=0.0, last_request_at=0.0)
        self.now = NOW

    def look(self, after: float = 5.0) -> Shortage:
        """What is remembered, after some seconds."""
        self.now += after
        stock = (GpuStock(product=PRODUCT, num_gpus=self.num_gpus),)
        inputs = ScalingInputs(now=self.now, services=(self.service, self.other), stock=stock)
        found = Shortages(inputs).find(self.service, self.memory)
        self.memory = replace(self.memory, short=found)
        return found.get("l4", Shortage(since=self.now, until=self.now, num_tries=0))

    def try_for(self, num_found: int) -> Shortage:
        """So many find a node, and one does not; all of them are given back."""
        waits = Replica(
            name="w", accelerator="l4", is_scheduled=False, is_ready=False, waiting_since=self.now
        )
        there = (*have(num_found), waits)
        self.service = replace(self.service, replicas=there, ordered={"l4": len(there), "h100": 1})
        self.look()
        found = self.look(180.0)
        self.service = replace(self.service, replicas=(), ordered={"l4": 0, "h100": 1})
        return replace(found, num_freed=self.look().num_freed)

    def wait(self) -> None:
        """Until it may be tried again."""
        self.look(self.memory.short["l4"].until - self.now)


def have(num: int, name: str = "a") -> tuple[Replica, ...]:
    return tuple(Replica(name=f"{name}{at}", accelerator="l4") for at in range(num))


def test_each_try_in_vain_doubles_the_time_to_the_next() -> None:
    short, pauses = Short(), []
    for _ in range(7):
        found = short.try_for(4)
        pauses.append((found.until - found.since) / 60)
        short.wait()
    assert pauses == [10, 20, 40, 80, 160, 240, 240]


def test_what_is_found_twice_in_one_try_counts_once() -> None:
    short = Short()
    assert short.try_for(4).num_tries == short.try_for(4).num_tries == 1


def test_what_waits_on_is_no_further_try() -> None:
    short = Short()
    waits = replace(have(1)[0], is_scheduled=False, is_ready=False, waiting_since=NOW - 180.0)
    short.service = replace(short.service, replicas=(waits,), ordered={"l4": 1, "h100": 1})
    assert [short.look(300.0).num_tries for _ in range(8)] == [1] * 8


def test_nodes_that_an_autoscaler_takes_away_and_makes_again_are_no_news() -> None:
    short = Short()
    short.try_for(4)
    short.num_gpus = 2  # those of the other
    short.wait()
    short.num_gpus = 6
    assert short.try_for(4).num_tries == 2


def give_back(short: Short) -> None:
    short.other = replace(short.other, replicas=have(1, "o"), ordered={"l4": 1})


def add_a_node(short: Short) -> None:
    short.num_gpus += 1


def change(short: Short, **changes: object) -> None:
    l4, h100 = short.service.accelerators
    changed = replace(l4, **changes)  # type: ignore[arg-type]
    short.service = replace(short.service, accelerators=(changed, h100))


def change_pods(short: Short) -> None:
    change(short, made_of="other")


def be_patient(short: Short) -> None:
    change(short, provision_timeout_seconds=900.0)


@pytest.mark.parametrize("news", [give_back, add_a_node, change_pods, be_patient])
def test_gpus_that_come_or_another_spec_end_it(news: Callable[[Short], None]) -> None:
    short = Short()
    for _ in range(3):
        short.try_for(4)
        short.wait()
    assert short.try_for(4).num_tries == 4
    news(short)
    found = short.look()
    assert found.num_tries == 0
    assert found.until == found.since + 600.0
    assert short.look().num_tries == 0
    short.wait()
    change(short, provision_timeout_seconds=180.0)
    assert short.try_for(4).num_tries <= 1


def test_more_with_a_node_than_there_were_end_it() -> None:
    short = Short()
    short.try_for(3)
    short.wait()
    short.service = replace(short.service, replicas=have(3), ordered={"l4": 3, "h100": 1})
    short.look()
    assert short.memory.short, "three there were before"
    short.service = replace(short.service, replicas=have(4), ordered={"l4": 4, "h100": 1})
    short.look()
    assert not short.memory.short


def test_after_hours_without_a_try_it_is_forgotten() -> None:
    short = Short()
    short.try_for(4)
    short.wait()
    short.look(4 * 3600.0 - 10.0)
    assert short.memory.short
    short.look(20.0)
    assert not short.memory.short


def test_a_clock_set_back_keeps_no_shortage_for_longer() -> None:
    known = {"l4": Shortage(since=NOW, until=NOW + 1200.0, num_tries=2)}
    memory = ServiceMemory(since=0.0, last_request_at=0.0, short=known, retried=known)
    inputs = ScalingInputs(now=NOW - 5000.0, services=())
    found = rejuvenate(memory, service("l4"), inputs, NOW)
    assert found.short == found.retried
    assert (found.short["l4"].since, found.short["l4"].until) == (NOW - 5000.0, NOW - 3800.0)


def test_what_is_pardoned_may_be_tried_once_it_was_short_for_long_enough() -> None:
    known = {"l4": Shortage(since=NOW, until=NOW + 1200.0, num_tries=2)}
    assert pardon(known, NOW + 599.0, 600.0) == known
    assert pardon(known, NOW + 600.0, 600.0)["l4"].until == NOW + 600.0
    assert pardon(known, NOW + 1300.0, 600.0) == known


def test_steady_traffic_that_a_cheaper_mix_has_too_few_nodes_for_settles() -> None:
    seen = service("l4", "h100")
    world = World(seen, rate=4 * L4_RATE * 1.12, ordered={"l4": 4}, nodes={"l4": 4})
    world.run(3200)
    at = next(at for at, (_, counts, _) in enumerate(world.changes) if counts["h100"])
    assert all(counts["h100"] == 1 for _, counts, _ in world.changes[at:]), "it serves meanwhile"
    moves = [when for when, _, reason in world.changes if reason.startswith("Move")]
    first, second = moves
    assert second - first > 1200.0


def needing(seen: ServiceInputs, rate: float) -> World:
    """A service that is short of L4 for the fifth time, and needs more."""
    world = World(seen, rate=rate, ordered={"l4": 1, "h100": 1})
    world.run(10)
    known = world.memory.services[KEY]
    l4 = Shortage(since=world.now, until=world.now + 9600.0, num_tries=5, num_had=1)
    services = {KEY: replace(known, short={"l4": l4})}
    world.memory = replace(world.memory, services=services)
    return world


def test_where_nothing_else_has_room_it_is_tried_as_after_the_first_time() -> None:
    most_one = (accelerator("l4"), accelerator("h100", max_replicas=1))
    world = needing(service(accelerators=most_one), rate=40.0)
    world.run(590)
    assert world.ordered == {"l4": 1, "h100": 1}
    world.run(30)
    assert world.ordered["l4"] > 1


@pytest.mark.parametrize(("seconds_ago", "num_l4"), [(300.0, 1), (600.0, 3)])
def test_who_was_never_short_is_held_up_only_as_long_as_after_the_first_time(
    seconds_ago: float, num_l4: int
) -> None:
    """One service has others than L4; the other one has nothing else, and needs more."""
    patient = World(service("l4", "h100", key="team/patient"), rate=1.0, ordered={"h100": 1})
    needy = World(service("l4"), rate=3 * L4_RATE, ordered={"l4": 1})
    memory = ScalingMemory()
    for _ in range(12):
        for world in (patient, needy):
            world.now += 5.0
            world._arrive()
        services = (*patient.inputs().services, *needy.inputs().services)
        inputs = ScalingInputs(now=needy.now, services=services)
        decision, memory = decide(inputs, memory)
        since = inputs.now - seconds_ago
        known = Shortage(since=since, until=since + 9600.0, num_tries=5)
        patients = replace(memory.services["team/patient"], short={"l4": known})
        memory = replace(memory, services={**memory.services, "team/patient": patients})
    assert decision.of(KEY).replicas["l4"] == num_l4
    assert decision.of("team/patient").replicas == {"l4": 0, "h100": 1}


def test_where_others_have_room_these_come_and_it_is_not_tried() -> None:
    world = needing(service("l4", "h100"), rate=40.0)
    world.run(1500)
    assert world.ordered["l4"] <= 1
    assert world.ordered["h100"] > 1


@pytest.mark.parametrize("of_all", [True, False])
def test_below_the_minimum_it_is_tried_as_after_the_first_time(of_all: bool) -> None:
    l4, h100 = accelerator("l4"), accelerator("h100", max_replicas=1)
    world = needing(service(accelerators=(l4, h100)), rate=1.0)
    if of_all:
        world.service = replace(world.service, min_replicas=3)
    else:
        world.change(replace(l4, min_replicas=2), h100)
    world.run(580)
    assert world.ordered["l4"] == 1
    world.run(30)
    assert world.ordered["l4"] == 2
