"""GPUs that services compete for: who is served first, and when a number of GPUs is a limit."""

import itertools
from dataclasses import replace

import pytest

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory, Shortage
from quire_operator.scaling.inputs import GpuStock, Replica, ScalingInputs, ServiceInputs
from quire_operator.scaling.rooms import Rooms
from tests.unit.scaling.worlds import INTERVAL, World, accelerator, service

NOW = 10_000.0
PRODUCT = "NVIDIA-L4"


def two_services(*, priority: int = 0, ordered: tuple[int, int] = (2, 2)) -> list[ServiceInputs]:
    """Two services on the same GPU, the first more important if it has a priority."""
    l4 = accelerator("l4", products=(PRODUCT,))
    made = replace(service("l4"), accelerators=(l4,))
    return [
        replace(made, key="team/first", priority=priority, ordered={"l4": ordered[0]}),
        replace(made, key="team/second", ordered={"l4": ordered[1]}),
    ]


def most(services: list[ServiceInputs], key: str, *, num_gpus: int, is_final: bool) -> int | None:
    """GPUs that a service may have; None: nobody knows a limit."""
    stock = (GpuStock(product=PRODUCT, num_gpus=num_gpus, is_final=is_final),)
    inputs = ScalingInputs(now=NOW, services=tuple(services), stock=stock)
    rooms = Rooms(inputs, {one.key: {} for one in services})
    found = rooms.of(next(one for one in services if one.key == key))
    return found[0].most if found else None


def waiting(seconds: float) -> ServiceInputs:
    """A service with one replica that has a node, and one that has waited for one."""
    there = Replica(name="a", accelerator="l4")
    waits = Replica(
        name="b",
        accelerator="l4",
        is_scheduled=False,
        is_ready=False,
        waiting_since=NOW - seconds,
    )
    made = two_services()[0]
    return replace(made, replicas=(there, waits))


def test_nodes_that_an_autoscaler_may_bring_are_no_limit() -> None:
    assert most(two_services(), "team/first", num_gpus=4, is_final=False) is None


def test_equals_keep_what_they_have() -> None:
    services = two_services(ordered=(3, 1))
    assert most(services, "team/first", num_gpus=4, is_final=True) == 3
    assert most(services, "team/second", num_gpus=4, is_final=True) == 1


def test_the_more_important_one_may_have_all_but_the_minimum_of_the_other() -> None:
    services = two_services(priority=1, ordered=(1, 3))
    assert most(services, "team/first", num_gpus=4, is_final=True) == 3
    assert most(services, "team/second", num_gpus=4, is_final=True) == 3
    services[1] = replace(services[1], min_replicas=0)
    assert most(services, "team/first", num_gpus=4, is_final=True) == 4


@pytest.mark.parametrize("priority", [0, 5])
def test_who_has_nothing_gets_its_minimum_from_those_who_have_all(priority: int) -> None:
    services = two_services(priority=priority, ordered=(4, 0))
    assert most(services, "team/first", num_gpus=4, is_final=True) == 3
    decided = decide(
        ScalingInputs(
            now=NOW,
            services=tuple(services),
            stock=(GpuStock(product=PRODUCT, num_gpus=4, is_final=True),),
        ),
        ScalingMemory(),
    )[0]
    assert decided.of("team/first").replicas == {"l4": 3}
    assert decided.of("team/second").replicas == {"l4": 1}


def test_where_minimums_do_not_fit_the_more_important_one_has_its_own() -> None:
    services = two_services(priority=1, ordered=(0, 1))
    services[0] = replace(services[0], min_replicas=2)
    assert most(services, "team/first", num_gpus=2, is_final=True) == 2


def test_a_minimum_that_is_kept_elsewhere_takes_nothing_here() -> None:
    services = two_services(priority=1, ordered=(1, 0))
    h100 = accelerator("h100", products=("NVIDIA-H100",))
    both = replace(
        services[1], accelerators=(*services[1].accelerators, h100), ordered={"l4": 0, "h100": 1}
    )
    assert most([services[0], both], "team/first", num_gpus=4, is_final=True) == 4


def test_who_must_give_way_is_told_to_whom() -> None:
    services = two_services(priority=1, ordered=(3, 3))
    services[0] = replace(services[0], min_replicas=3)
    stock = (GpuStock(product=PRODUCT, num_gpus=4, is_final=True),)
    inputs = ScalingInputs(now=NOW, services=tuple(services), stock=stock)
    found = decide(inputs, ScalingMemory())[0].of("team/second")
    assert found.replicas == {"l4": 1}
    assert "services of higher priority leave: team/first" in found.reason


def test_what_was_decided_for_the_first_is_taken_from_the_second() -> None:
    services = two_services(priority=1, ordered=(1, 3))
    stock = (GpuStock(product=PRODUCT, num_gpus=4, is_final=True),)
    inputs = ScalingInputs(now=NOW, services=tuple(services), stock=stock)
    rooms = Rooms(inputs, {one.key: {} for one in services})
    rooms.decide(services[0], {"l4": 3})
    assert rooms.of(services[1])[0].most == 1


def test_where_it_is_short_what_has_nodes_is_the_limit_and_who_waits_may_wait_on() -> None:
    one = waiting(200.0)
    inputs = ScalingInputs(now=NOW, services=(one,))
    rooms = Rooms(inputs, {one.key: {"l4": Shortage(since=NOW, until=NOW + 600.0)}})
    assert rooms.of(one)[0].most == one.ordered["l4"]
    other = replace(two_services()[1], ordered={"l4": 0})
    both = ScalingInputs(now=NOW, services=(one, other))
    rooms = Rooms(both, {one.key: {"l4": Shortage(since=NOW, until=NOW + 600.0)}, other.key: {}})
    rooms.decide(one, one.ordered)
    assert rooms.of(other)[0].most == 0


def test_sets_of_products_that_overlap_share_what_there_is() -> None:
    pairs = {"one": ("A", "B"), "two": ("B", "C"), "three": ("A", "C")}
    services = [
        replace(
            service("l4"),
            key=f"team/{name}",
            min_replicas=2,
            accelerators=(accelerator("l4", products=products),),
        )
        for name, products in pairs.items()
    ]
    stock = tuple(GpuStock(product=one, num_gpus=1, is_final=True) for one in "ABC")
    found = decide(ScalingInputs(now=NOW, services=tuple(services), stock=stock), ScalingMemory())[
        0
    ]
    assert sum(sum(one.replicas.values()) for one in found.services) == 3


@pytest.mark.parametrize(
    "sets",
    [
        ("AB", "CD", "EF", "BC", "DE"),
        ("AB", "CD", "EF", "GH", "BC", "FG", "DE"),
        tuple(a + b for a, b in itertools.pairwise("ABCDEFGHIJKLMNOPQRST")),
    ],
)
def test_chains_of_sets_that_overlap_share_what_there_is(sets: tuple[str, ...]) -> None:
    products = sorted(set("".join(sets)))
    stock = tuple(GpuStock(product=one, num_gpus=1, is_final=True) for one in products)
    worlds = [
        World(
            service(
                key=f"team/{number}", accelerators=(accelerator("l4", products=tuple(products)),)
            ),
            rate=50.0,
        )
        for number, products in enumerate(sets)
    ]
    memory = ScalingMemory()
    for _ in range(12):
        for one in worlds:
            one.now += INTERVAL
            one._arrive()
            one._start()
        services = tuple(one.inputs().services[0] for one in worlds)
        inputs = ScalingInputs(now=worlds[0].now, services=services, stock=stock)
        decision, memory = decide(inputs, memory)
        for world, decided in zip(worlds, decision.services, strict=True):
            world._apply(decided)
        assert sum(sum(one.counts.values()) for one in worlds) <= len(products)
    assert sum(sum(one.counts.values()) for one in worlds) > 0


def test_where_there_can_be_no_more_nobody_waits_for_what_others_are_to_have() -> None:
    one = replace(waiting(200.0), ordered={"l4": 2}, replicas=waiting(200.0).replicas[1:])
    other = replace(two_services()[1], priority=5, min_replicas=2, ordered={"l4": 0})
    stock = (GpuStock(product=PRODUCT, num_gpus=2, is_final=True),)
    inputs = ScalingInputs(now=NOW, services=(one, other), stock=stock)
    found = decide(inputs, ScalingMemory())[0]
    assert found.of(other.key).replicas == {"l4": 2}
    assert found.of(one.key).replicas == {"l4": 0}
