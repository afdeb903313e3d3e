"""Accelerators whose replicas fail before any is ready: how long none is added, and when one is."""

from dataclasses import replace

import pytest

from quire_operator.scaling import failures
from quire_operator.scaling.decision import Failure, ScalingMemory, ServiceMemory
from quire_operator.scaling.inputs import Replica, ScalingInputs, ServiceInputs
from quire_operator.scaling.keeping import rejuvenate
from quire_operator.scaling.outcome import outcome_of
from tests.unit.scaling.worlds import World, accelerator, codes, service

NOW = 10_000.0
FAILS = Replica(name="a", accelerator="l4", is_ready=False, is_failing=True)


def seen(*replicas: Replica, made_of: str = "") -> ServiceInputs:
    l4 = accelerator("l4", made_of=made_of)
    return service("l4", accelerators=(l4,), replicas=replicas, ordered={"l4": len(replicas)})


def fail_all(world: World, *names: str) -> None:
    """No replica of these accelerators ever starts."""
    world.replicas = [
        replace(one, is_failing=True, is_ready=False)
        if one.accelerator in names and one.is_scheduled
        else one
        for one in world.replicas
    ]


def run(world: World, seconds: float, *bad: str) -> list[float]:
    """Decide for so long; when replicas of the bad ones were added."""
    until, added = world.now + seconds, []
    while world.now < until:
        before = dict(world.ordered)
        world.now += 5.0
        world._arrive()
        world._start()
        fail_all(world, *bad)
        world.last = world.look().of(world.service.key)
        world._apply(world.last)
        if any(world.ordered[name] > before[name] for name in bad):
            added.append(world.now)
    return added


def dear_one_serves() -> World:
    """An H100 serves what an L4 could for a tenth of the price, if it started."""
    return World(service("l4", "h100", down_seconds=60.0), rate=0.5, ordered={"h100": 1})


def test_where_nothing_serves_and_nothing_may_be_added_that_is_said() -> None:
    world = World(service("l4", max_replicas=1), rate=1.0, ordered={"l4": 1})
    run(world, 200, "l4")
    assert world.last is not None
    assert world.last.reason.startswith("nothing serves")


def test_what_fails_is_tried_again_ever_later_and_what_serves_stays() -> None:
    world = dear_one_serves()
    first, second = run(world, 900, "l4")
    assert second - first >= 600.0
    assert world.counts == {"h100": 1}


def test_the_time_doubles_from_ten_minutes_to_four_hours() -> None:
    known: dict[str, Failure] = {}
    now, waits = NOW, []
    for number in range(7):
        known = failures.find(seen(replace(FAILS, name=f"l4-{number}")), known, now)
        waits.append(known["l4"].until - now)
        assert failures.avoided(known, now) == {"l4"}
        known = failures.find(seen(), known, now + 5.0)
        now = known["l4"].until
        assert failures.avoided(known, now) == frozenset()
    assert waits == [600.0, 1200.0, 2400.0, 4800.0, 9600.0, 14_400.0, 14_400.0]


def test_several_of_one_try_and_one_that_ends_again_and_again_count_once() -> None:
    starting = replace(FAILS, is_failing=False)
    known = failures.find(seen(FAILS), {}, NOW)
    for at in range(1, 400):
        again = starting if at % 3 else FAILS
        known = failures.find(seen(again, replace(FAILS, name="b")), known, NOW + 5.0 * at)
    assert known["l4"].num_tries == 1


@pytest.mark.parametrize(
    "after",
    [seen(replace(FAILS, is_failing=False, is_ready=True)), seen(made_of="another image")],
    ids=["ready", "others"],
)
def test_it_is_forgotten_when_one_is_ready_or_pods_are_made_of_something_else(
    after: ServiceInputs,
) -> None:
    known = failures.find(seen(FAILS), {}, NOW)
    assert failures.find(after, known, NOW + 5.0) == {}


def test_a_replica_of_the_old_settings_says_nothing_of_the_new_ones() -> None:
    known = failures.find(seen(FAILS), {}, NOW)
    known = failures.find(seen(FAILS, made_of="another image"), known, NOW + 5.0)
    assert failures.avoided(known, NOW + 5.0) == frozenset()
    newer = replace(FAILS, name="b")
    known = failures.find(seen(FAILS, newer, made_of="another image"), known, NOW + 90.0)
    assert known["l4"].num_tries == 1
    assert failures.avoided(known, NOW + 95.0) == {"l4"}


def test_a_suspended_service_forgets() -> None:
    known = failures.find(seen(FAILS), {}, NOW)
    assert failures.find(replace(seen(FAILS), is_suspended=True), known, NOW) == {}


def test_a_clock_that_is_set_back_makes_it_no_longer() -> None:
    known = failures.find(seen(FAILS), {}, NOW)
    memory = ServiceMemory(since=NOW, last_request_at=NOW, failures=known)
    earlier = ScalingInputs(now=NOW - 3600.0, services=())
    assert rejuvenate(memory, seen(), earlier, NOW).failures["l4"].until == NOW - 3000.0


def test_more_is_added_of_others_meanwhile() -> None:
    world = dear_one_serves()
    first = run(world, 200, "l4")
    assert len(first) == 1
    world.rate = 30.0
    assert run(world, 60, "l4") == []
    assert world.ordered["h100"] > 1


def test_the_minimum_is_made_of_others_if_there_are_such() -> None:
    world = dear_one_serves()
    run(world, 200, "l4")
    world.service = replace(world.service, min_replicas=2)
    world.step()
    assert world.counts == {"h100": 2}


def test_where_nothing_else_can_serve_it_is_tried_at_once() -> None:
    world = dear_one_serves()
    run(world, 200, "l4")
    assert world.ordered["l4"] == 0
    l4, h100 = world.service.accelerators
    world.change(l4, replace(h100, max_replicas=0))
    world.run(200)
    assert world.counts == {"l4": 1}
    assert world.num_serving == 1


def none_runs(*others: str) -> World:
    """An L4 has failed, and then nobody asked."""
    made = service("l4", *others, min_replicas=0, scale_to_zero_after_seconds=60.0)
    world = World(made, rate=0.5, ordered={"l4": 1})
    run(world, 10, "l4")
    world.rate = 0.0
    run(world, 120, "l4")
    assert world.counts == {}
    return world


@pytest.mark.parametrize(("others", "expected"), [(("h100",), {"h100": 1}), ((), {"l4": 1})])
def test_from_none_it_is_tried_if_nothing_else_can_be_and_others_before(
    others: tuple[str, ...], expected: dict[str, int]
) -> None:
    world = none_runs(*others)
    world.rate = 0.5
    world.run(15)
    assert world.counts == expected


@pytest.mark.parametrize(("others", "expected"), [(("h100",), {"h100": 1}), ((), {"l4": 1})])
def test_a_minimum_brings_one_at_once(others: tuple[str, ...], expected: dict[str, int]) -> None:
    world = none_runs(*others)
    world.service = replace(world.service, min_replicas=1)
    world.step()
    assert world.counts == expected


@pytest.mark.parametrize("least", [0, 1])
def test_two_that_fail_and_have_room_for_one_replica_do_not_take_turns(least: int) -> None:
    made = service("l4", "t4", min_replicas=least, max_replicas=1)
    world = World(made, rate=0.5, ordered={"l4": 1})
    run(world, 1800, "l4", "t4")
    assert 3 <= len(world.changes) <= 7
    assert sum(world.ordered.values()) == 1


def test_it_is_said_with_until_when() -> None:
    world = dear_one_serves()
    run(world, 200, "l4")
    assert world.last is not None
    assert codes(world) == {"ReplicasFail"}
    outcome = outcome_of(world.last)
    assert outcome.code == "ReplicasFail"
    assert "l4 failed once" in outcome.words
    assert "none is added before 1970-01-12T" in outcome.words
    run(world, 5, "l4")
    assert outcome_of(world.last) == outcome, "the same words until the next try"


def test_a_restart_tries_it_once_more() -> None:
    world = dear_one_serves()
    run(world, 200, "l4")
    world.memory = ScalingMemory()
    assert len(run(world, 200, "l4")) == 1
