"""What is decided of one service, in virtual time."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.inputs import MemoryPressure, ServiceLevel
from tests.unit.scaling.worlds import World, accelerator, capability, codes, service


def test_a_new_service_begins_with_the_cheapest_that_can_serve() -> None:
    world = World(service("t4", "l4", is_new=True, first_replicas=2))
    first = world.step()
    assert first.action == "Start"
    assert world.counts == {"t4": 2}


def test_more_traffic_takes_more_at_once_and_less_takes_less_after_a_while() -> None:
    world = World(service("l4", "h100"), rate=1.0, ordered={"l4": 1})
    world.run(400)
    assert world.counts == {"l4": 1}
    world.rate, risen_at = 30.0, world.now
    world.run(60)
    assert world.cost > 7.0
    assert world.changes[0][0] - risen_at <= 30
    assert world.changes[0][2].startswith("Up: load would be")
    world.run(300)
    world.rate, cost = 1.0, world.cost
    world.run(240)
    assert world.cost > 0.6 * cost  # the busiest minute of the window is not over
    world.run(960)
    assert world.counts == {"l4": 1}


def test_steady_traffic_changes_nothing_for_an_hour() -> None:
    world = World(service("t4", "h100"), rate=3.0, is_random=True, ordered={"t4": 3})
    world.run(900)
    world.changes = []
    world.run(3600)
    assert world.changes == []


def test_what_replaces_others_is_ready_before_they_go() -> None:
    world = World(service("t4", "h100"), rate=9.0, ordered={"h100": 1}, start_seconds=200)
    world.service = replace(
        world.service,
        accelerators=(accelerator("t4", max_replicas=20), accelerator("h100", cost_per_hour=20.0)),
    )
    world.run(430)
    assert world.ordered["t4"] == 0  # they have not been cheaper for half of a window
    world.run(40)
    assert world.ordered["h100"] == 1
    assert world.ordered["t4"] > 3
    assert world.changes[-1][2].startswith("Move")
    world.run(400)
    assert world.ordered["h100"] == 0
    assert world.changes[-1][2].startswith("Down")


def test_what_serves_all_for_less_comes_in_place_of_one_more() -> None:
    kinds = (accelerator("l4"), accelerator("h100", cost_per_hour=3.0))
    seen = replace(service("l4", "h100"), accelerators=kinds)
    world = World(seen, rate=8.0, ordered={"l4": 4})
    world.run(60)
    world.rate = 16.0
    world.run(30)
    assert world.changes[-1][1] == {"l4": 4, "h100": 1}  # six of the first cost 4.80
    world.run(300)
    assert world.counts == {"h100": 1}


def test_what_serves_all_for_less_comes_beside_what_fails() -> None:
    kinds = (accelerator("l4"), accelerator("h100", cost_per_hour=3.0))
    seen = replace(service("l4", "h100"), accelerators=kinds)
    world = World(seen, rate=12.0, ordered={"l4": 6})
    world.run(60)
    for at in range(6):
        world.replicas[at] = replace(world.replicas[at], is_failing=True, is_ready=False)
    world.run(5)
    assert world.counts == {"l4": 6, "h100": 1}


def test_without_room_for_both_nothing_is_replaced() -> None:
    world = World(service("t4", "h100", max_replicas=1), rate=0.2, ordered={"h100": 1})
    world.run(900)
    assert world.counts == {"h100": 1}
    assert world.last is not None
    assert "no room" in world.last.reason


def test_the_replica_with_the_fewest_blocks_goes() -> None:
    world = World(service("l4"), rate=0.2, ordered={"l4": 5})
    world.run(280)
    assert world.counts == {"l4": 5}
    held = {one.name: world._seen(one).engine for one in world.replicas}
    while world.counts == {"l4": 5}:
        world.step()
    gone = held.keys() - {one.name for one in world.replicas}
    blocks = {name: engine.num_held_blocks for name, engine in held.items() if engine}
    assert {blocks[name] for name in gone} == {min(blocks.values())}


def test_full_engines_get_help_at_once_and_what_is_on_its_way_counts() -> None:
    world = World(service("l4"), rate=0.1, ordered={"l4": 2}, start_seconds=100)
    world.run(100)
    world.pressure = 1.1
    first = world.step()
    assert first.action == "Up"
    assert "pressure of blocks is 110 %" in first.reason
    after_one = dict(world.ordered)
    world.run(60)
    assert world.ordered == after_one


def test_a_queue_that_will_miss_its_deadline_gets_help_at_once() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 1})
    world.run(100)
    world.num_waiting, world.oldest_seconds = 100, 3.0
    found = world.step()
    assert found.action == "Up"
    assert "100 requests wait" in found.reason
    helped = dict(world.ordered)
    world.run(50)
    assert world.ordered == helped


def test_seats_that_are_taken_for_longer_than_computed_count() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 1})
    world.binding, world.pressure = "seats", 0.7
    world.run(400)
    assert world.counts == {"l4": 1}
    world.pressure = 0.92
    world.run(240)
    assert world.counts == {"l4": 2}
    world.pressure = 0.6
    world.run(1200)
    assert world.counts == {"l4": 2}
    world.pressure = 0.1
    world.run(600)
    assert world.counts == {"l4": 1}


def test_nothing_goes_while_requests_wait() -> None:
    world = World(service("l4"), rate=0.5, ordered={"l4": 3})
    world.num_waiting, world.oldest_seconds = 1, 0.1
    world.run(900)
    assert world.counts == {"l4": 3}
    world.num_waiting = 0
    world.run(600)
    assert world.counts == {"l4": 1}


def test_an_impossible_promise_gets_the_best_there_is() -> None:
    slo = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.001)
    world = World(service("t4", "h100", slo=slo), rate=1.0, ordered={"t4": 1})
    world.run(900)
    assert "SloImpossible" in codes(world)
    assert world.ordered["h100"] >= 1


def test_without_a_promise_blocks_decide() -> None:
    world = World(
        service("l4", slo=ServiceLevel()), rate=2.0, lengths=(400, 1800), ordered={"l4": 1}
    )
    found = world.run(120)
    assert found.accelerators["l4"].binding == "blocks"
    assert world.ordered["l4"] > 1


def test_bounds_that_change_hold_at_once() -> None:
    world = World(service("l4", min_replicas=1), rate=0.5, ordered={"l4": 1})
    world.run(20)
    world.service = replace(world.service, min_replicas=3)
    world.step()
    assert world.counts == {"l4": 3}
    world.service = replace(world.service, min_replicas=1, max_replicas=2)
    world.step()
    assert world.counts == {"l4": 2}


def test_nothing_is_taken_away_during_a_rollout() -> None:
    world = World(service("l4", is_rolling_out=True), rate=0.2, ordered={"l4": 4})
    world.run(1200)
    assert world.counts == {"l4": 4}


def test_recommended_is_what_would_be_done() -> None:
    world = World(service("l4", mode="Recommend"), rate=20.0, ordered={"l4": 1})
    found = world.run(120)
    assert world.counts == {"l4": 1}
    assert found.wanted["l4"] > 1
    assert "Auto would" in found.reason


def test_external_is_left_alone() -> None:
    world = World(service("l4", mode="External"), rate=20.0, ordered={"l4": 1})
    found = world.run(600)
    assert world.changes == []
    assert not found.is_change


def test_tokens_are_shared_between_what_is_ready() -> None:
    world = World(service("l4", "h100"), rate=8.0, ordered={"l4": 2, "h100": 1})
    found = world.run(60)
    assert set(found.traffic_shares) == {"l4", "h100"}
    assert sum(found.traffic_shares.values()) == pytest.approx(1.0, abs=0.02)
    assert found.traffic_shares["h100"] > found.traffic_shares["l4"]


def test_a_restart_changes_nothing() -> None:
    world = World(service("t4", "l4", "h100"), rate=9.0, is_random=True, ordered={"l4": 2})
    world.run(1200)
    world.changes = []
    for _ in range(10):
        world.memory = ScalingMemory()
        world.run(60)
    assert world.changes == []


def test_a_lower_target_takes_more_replicas() -> None:
    counts = []
    for target in (0.9, 0.6, 0.3):
        world = World(service("l4"), rate=8.0, ordered={"l4": 1})
        world.service = replace(world.service, pressure=MemoryPressure(target=target))
        world.run(120)
        counts.append(world.ordered["l4"])
    assert counts[0] < counts[1] < counts[2]


def test_others_that_carry_more_may_cost_a_little_more_than_what_there_is() -> None:
    made = [
        accelerator(name, expected=capability(name, "none"), max_replicas=40)
        for name in ("l4", "h100")
    ]
    seen = service(accelerators=tuple(made), slo=ServiceLevel(), max_replicas=60)
    world = World(seen, rate=38.0, lengths=(1000, 400), ordered={"l4": 10, "h100": 2})
    world.run(120)
    assert world.ordered == {"l4": 10, "h100": 3}, "in place of eight L4"
    world.run(900)
    assert world.counts in ({"h100": 3}, {"l4": 1, "h100": 3})


def test_others_that_cost_more_than_what_there_is_do_not_come_for_a_peak() -> None:
    slo = ServiceLevel(first_token_seconds=2.0, per_token_seconds=None)
    world = World(service("t4", "l4", slo=slo), rate=0.8, lengths=(2000, 200), ordered={"t4": 2})
    world.run(290)
    assert world.counts == {"t4": 3}
