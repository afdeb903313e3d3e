"""Bounds that are lowered, or that prices stand against: what goes, and what comes in its place."""

from dataclasses import replace

import pytest

from quire_operator.scaling.clamping import Limit, Limits, consistent
from quire_operator.scaling.minimum import trade
from quire_operator.scaling.mix import Room
from tests.unit.scaling.worlds import World, accelerator, codes, service

DEAR, CHEAP = 2.0, 1.0


def tight(num_dear: int, *, start_seconds: float = 60.0) -> World:
    """At least three, and money for three L4, for two H100, or for one of each."""
    kinds = (accelerator("l4", cost_per_hour=CHEAP), accelerator("h100", cost_per_hour=DEAR))
    made = service(accelerators=kinds, min_replicas=3, max_cost_per_hour=2 * DEAR - 0.5)
    return World(made, rate=0.5, ordered={"h100": num_dear}, start_seconds=start_seconds)


def limits(
    fewest: int, *, num: int = 9, most_cost: float | None = None, rooms: tuple[Room, ...] = ()
) -> Limits:
    kinds = (
        Limit(name="h100", cost=DEAR, lowest=0, highest=num),
        Limit(name="l4", cost=CHEAP, lowest=0, highest=num),
    )
    return consistent(kinds, fewest=fewest, most=num, most_cost=most_cost, rooms=rooms)


def test_the_dear_one_makes_room_for_the_minimum_when_a_cheap_one_serves() -> None:
    world = tight(1)
    num_serving = []
    for _ in range(60):
        world.step()
        num_serving.append(world.num_serving)
        is_less = sum(world.ordered.values()) < 3
        assert is_less == ("Infeasible" in codes(world))
    assert world.counts == {"l4": 3}
    assert min(num_serving) == 1
    assert [one for _, one, _ in world.changes] == [{"h100": 1, "l4": 1}, {"h100": 0, "l4": 3}]


def test_the_last_that_serves_stays_where_what_should_come_never_starts() -> None:
    world = tight(1, start_seconds=1e9)
    world.run(600)
    assert world.counts == {"h100": 1, "l4": 1}
    assert world.num_serving == 1
    assert world.last is not None
    said = next(one.message for one in world.last.findings if one.code == "Infeasible")
    assert "minReplicas" in said
    assert "maxCostPerHour (3.5)" in said


def exchange(
    held: Limits, replicas: dict[str, int], serving: dict[str, int]
) -> dict[str, int] | None:
    """While nothing is on its way."""
    return trade(held, replicas, serving, is_coming=False)


def test_what_fails_makes_room_for_what_does_not() -> None:
    held = limits(3, most_cost=4.0)
    held = replace(held, limits=(held.limits[0], replace(held.limits[1], is_doubtful=True)))
    found = exchange(held, {"h100": 1, "l4": 1}, {"h100": 1, "l4": 0})
    assert found == {"h100": 2, "l4": 0}
    assert exchange(held, {"h100": 2, "l4": 0}, {"h100": 2, "l4": 0}) is None


@pytest.mark.parametrize(
    ("num_dear", "num_ready", "expected"),
    [(2, 2, {"h100": 1, "l4": 2}), (4, 4, {"h100": 3, "l4": 2}), (1, 0, None)],
)
def test_as_few_go_as_can_be(num_dear: int, num_ready: int, expected: dict[str, int]) -> None:
    held = limits(num_dear + 1, most_cost=DEAR * num_dear)
    found = exchange(held, {"h100": num_dear, "l4": 0}, {"h100": num_ready, "l4": 0})
    assert found == (expected or {"h100": 0, "l4": 2})


def test_where_cheap_ones_take_more_gpus_the_minimum_is_made_of_dear_ones() -> None:
    room = Room(gpus={"l4": 2, "h100": 1}, most=4)
    held = limits(3, rooms=(room,))
    assert held.findings == ()
    assert held.bounds.fewest == 3
    assert held.fit(held.least)
    found = exchange(held, {"h100": 0, "l4": 2}, {"h100": 0, "l4": 2})
    assert found == {"h100": 2, "l4": 1}


def test_of_many_that_serve_a_quarter_goes_at_a_time_for_a_larger_minimum() -> None:
    cheap = accelerator("l4", cost_per_hour=CHEAP, max_replicas=16)
    kinds = (cheap, accelerator("h100", cost_per_hour=DEAR))
    made = service(accelerators=kinds, min_replicas=16, max_cost_per_hour=8 * DEAR)
    world = World(made, rate=0.5, ordered={"h100": 8}, start_seconds=30)
    num_serving = []
    for _ in range(60):
        world.step()
        num_serving.append(world.num_serving)
        assert world.cost <= 8 * DEAR
    assert min(num_serving) == 6
    assert world.counts == {"l4": 16}


def test_what_is_as_good_for_as_much_does_not_come_and_go() -> None:
    """The minimum can only be kept with what fails, beside which two others cost the same."""
    kinds = (
        Limit(name="t4", cost=0.5, lowest=0, highest=3, is_doubtful=True),
        Limit(name="a10g", cost=1.0, lowest=0, highest=1),
        Limit(name="l4", cost=1.0, lowest=0, highest=9),
    )
    held = consistent(kinds, fewest=5, most=7, most_cost=4.0, rooms=())
    one_way, other = {"t4": 0, "a10g": 1, "l4": 3}, {"t4": 0, "a10g": 0, "l4": 4}
    assert exchange(held, one_way, one_way) is None
    assert exchange(held, other, other) is None


@pytest.mark.parametrize("most", [1, 2])
def test_where_bounds_are_lowered_a_silent_one_stays_before_what_is_on_its_way(most: int) -> None:
    world = World(service("l4", "h100"), rate=2.0, ordered={"h100": 1}, start_seconds=300)
    world.run(30)
    world.silent_since = {"h100-0001": world.now - 30.0}
    world.ordered["l4"] = 3
    for _ in range(3):
        world._add("l4")
    world.service = replace(world.service, max_replicas=most)
    world.step()
    assert "MetricsStale" in codes(world)
    assert world.counts.get("h100") == 1
    assert sum(world.counts.values()) == most


def test_where_bounds_are_lowered_what_speaks_stays_before_what_is_silent() -> None:
    world = World(service("l4", "h100"), rate=2.0, ordered={"l4": 1, "h100": 1})
    world.run(30)
    world.silent_since = {"l4-0001": world.now}
    world.run(30)
    world.service = replace(world.service, max_replicas=1)
    world.step()
    assert world.counts == {"h100": 1}


def test_an_accelerators_own_minimum_takes_nobody_a_silent_last_one() -> None:
    kinds = (accelerator("t4", min_replicas=1), accelerator("l4"))
    made = service("t4", "l4", max_replicas=2, accelerators=(kinds[1],))
    world = World(made, rate=0.5, ordered={"l4": 1}, start_seconds=1e9)
    world.run(30)
    world.silent_since = {"l4-0001": world.now}
    world.run(30)
    world.change(*kinds)
    world.service = replace(world.service, max_replicas=1)
    world.run(300)
    assert world.ordered["l4"] == 1


def test_who_is_silent_is_not_stood_in_for_in_its_place() -> None:
    """Where one more of its accelerator finds no node."""
    made = service("l4", "h100", min_replicas=3, max_replicas=3)
    world = World(made, rate=0.5, ordered={"l4": 2}, nodes={"l4": 2}, start_seconds=1e9)
    world.ordered["l4"] = 3
    world._add("l4")
    world.run(30)
    world.silent_since = {"l4-0001": world.now}
    world.run(400)
    assert world.counts == {"l4": 2, "h100": 1}
    assert world.num_serving == 2
