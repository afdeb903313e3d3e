"""What is decided of one service, in virtual time."""

from dataclasses import replace

import pytest
from msgspec import structs

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.inputs import GpuStock, MemoryPressure, Replica, ServiceLevel
from tests.unit.scaling.worlds import World, accelerator, capability, service


def codes(world: World) -> set[str]:
    """What is found."""
    assert world.last is not None
    return {one.code for one in world.last.findings}


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
    world.run(580)
    assert world.ordered["t4"] == 0  # they have not been cheaper for a whole window
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


def test_what_is_not_heard_is_not_zero() -> None:
    world = World(service("l4"), rate=8.0, ordered={"l4": 6})
    world.run(100)
    world.is_gateway_heard, world.rate = False, 0.0
    world.changes = []
    world.run(1800)
    assert world.changes == []
    assert codes(world) == {"NoMetrics"}
    assert world.last is not None
    assert not world.last.are_metrics_fresh


def test_silent_engines_take_nothing_away_and_keep_nothing_from_coming() -> None:
    world = World(service("l4"), rate=0.2, ordered={"l4": 4})
    world.are_engines_heard = False
    world.run(1200)
    assert world.counts == {"l4": 4}
    assert "MetricsStale" in codes(world)
    world.rate = 20.0
    world.run(120)
    assert world.ordered["l4"] > 4


def test_a_gateway_that_is_missing_takes_nothing_away() -> None:
    world = World(service("l4", num_gateways=2), rate=0.2, ordered={"l4": 4})
    world.run(1200)
    assert world.counts == {"l4": 4}


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


def test_nobody_asks_and_somebody_asks_again() -> None:
    world = World(
        service("l4", min_replicas=0, scale_to_zero_after_seconds=600.0),
        rate=0.5,
        ordered={"l4": 1},
    )
    world.run(400)
    world.rate, quiet_at = 0.0, world.now
    world.run(1200)
    assert world.counts == {}
    assert world.changes[-1][2].startswith("Zero")
    assert world.changes[-1][0] - quiet_at >= 600
    world.num_waiting = 1
    world.run(10)
    assert world.counts == {"l4": 1}
    assert world.changes[-1][2].startswith("Wake")


def at_zero() -> World:
    """Nobody has asked for long, and none is left."""
    changes = {"min_replicas": 0, "scale_to_zero_after_seconds": 60.0}
    world = World(service("l4", **changes), rate=0.5, ordered={"l4": 1})
    world.run(400)
    world.rate = 0.0
    world.run(900)
    assert world.counts == {}
    return world


def test_a_restart_wakes_nobody() -> None:
    world = at_zero()
    world.memory = ScalingMemory()
    world.changes.clear()
    world.run(60)
    assert world.changes == []
    world.num_waiting = 1
    assert world.step().action == "Wake"


@pytest.mark.parametrize("back", [1.0, 300.0, 3600.0])
@pytest.mark.parametrize("is_between", [False, True])
def test_a_clock_that_goes_back_wakes_nobody(back: float, *, is_between: bool) -> None:
    world = at_zero()
    world.changes.clear()
    world.now -= back
    world._since -= back
    if is_between:  # seen first when another service's spec has changed
        other = replace(world.inputs().services[0], key="team/other")
        both = replace(world.inputs(), services=(*world.inputs().services, other))
        _, world.memory = decide(both, world.memory, changed=["team/other"])
    world.run(60)
    assert world.changes == []


def test_without_scale_to_zero_after_one_stays() -> None:
    world = World(service("l4", min_replicas=0), rate=0.0, ordered={"l4": 1})
    world.run(3600)
    assert world.counts == {"l4": 1}


def test_one_request_an_hour_needs_one_replica() -> None:
    world = World(service("l4", "h100"), rate=1 / 3600, ordered={"l4": 1})
    world.run(3900)
    assert world.counts == {"l4": 1}
    assert world.changes == []


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


def test_prices_that_are_missing_are_assumed_and_said() -> None:
    world = World(service("l4", "h100"), rate=1.0, ordered={"l4": 1})
    accelerators = (accelerator("l4", cost_per_hour=None), accelerator("h100"))
    world.service = replace(world.service, accelerators=accelerators)
    world.run(120)
    assert "PriceUnknown" in codes(world)
    nothing = tuple(replace(one, cost_per_hour=None) for one in accelerators)
    world.service = replace(world.service, accelerators=nothing)
    world.run(120)
    assert sum(world.ordered.values()) >= 1


def test_nothing_is_known_of_what_replicas_can_do() -> None:
    world = World(service("l4"), rate=5.0, ordered={"l4": 3})
    world.service = replace(
        world.service, accelerators=(replace(accelerator("l4"), expected=None),)
    )
    world.run(1200)
    assert world.counts == {"l4": 3}
    assert "CapacityUnknown" in codes(world)
    world.pressure = 1.2
    world.step()
    assert world.counts == {"l4": 4}
    world.step()
    assert world.counts == {"l4": 4}


def test_profiles_that_contradict_each_other_are_named() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 2})
    fast = capability("l4")
    slow = replace(
        fast,
        step_time=structs.replace(
            fast.step_time,
            compute_seconds=tuple(3 * one for one in fast.step_time.compute_seconds),
        ),
    )
    seen = world._seen
    kinds = {world.replicas[0].name: fast, world.replicas[1].name: slow}

    def contradict(one: Replica) -> Replica:
        found = seen(one)
        assert found.engine is not None
        return replace(found, engine=replace(found.engine, capability=kinds.get(one.name, fast)))

    world._seen = contradict  # type: ignore[method-assign]
    world.run(60)
    assert "ProfilesDiffer" in codes(world)


def test_figures_that_are_no_numbers_are_as_if_not_heard() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 2})
    world.pressure = float("nan")
    world.run(900)
    assert world.counts == {"l4": 2}


@pytest.mark.parametrize("back", [7.0, 3600.0])
def test_a_clock_that_goes_back_changes_nothing(back: float) -> None:
    world = World(service("l4"), rate=3.0, ordered={"l4": 2})
    world.run(900)
    world.changes = []
    world.now -= back
    world._since -= back
    world.run(900)
    assert world.changes == []


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
