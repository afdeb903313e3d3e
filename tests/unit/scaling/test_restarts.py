"""Operators that begin anew, beside traffic that stays as it is, and traffic that grows."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from quire_operator.scaling.decision import Answers, Sample, ScalingMemory, ServiceMemory
from quire_operator.scaling.demand import estimate
from quire_operator.scaling.inputs import GatewayFigures, ServiceLevel
from tests.unit.scaling.worlds import World, service


class Unanswered(World):
    """No request has ended yet."""

    def gateway(self) -> GatewayFigures:
        seen = super().gateway()
        none = tuple((0,) * len(row) for row in seen.ended)
        return replace(seen, ended=none, prompt_tokens=0, output_tokens=0)


def restart(world: World) -> None:
    """Forget everything."""
    world.memory = ScalingMemory()


def full_world(
    ordered: Mapping[str, int], lengths: tuple[int, int] = (1000, 200), seed: int = 1
) -> World:
    """One whose replicas are at 105 % of the target: not enough to add any."""
    calm = World(
        service("l4", slo=ServiceLevel(first_token_seconds=5.0, per_token_seconds=0.12)),
        rate=0.1,
        lengths=lengths,
        ordered=dict(ordered),
        seed=seed,
    )
    calm.run(60)
    assert calm.last is not None
    able = calm.last.accelerators["l4"].requests_per_second
    assert able is not None
    calm.rate = 1.05 * able * sum(ordered.values())
    return calm


@pytest.mark.parametrize(("replicas", "seed"), [(1, 1), (4, 2)])
def test_chance_after_restarts_adds_nothing_to_steady_traffic(replicas: int, seed: int) -> None:
    world = full_world({"l4": replicas}, seed=seed)
    world.is_random = True
    world.run(600)
    before = world.counts
    for _ in range(20):
        restart(world)
        world.run(60)
    assert world.counts == before


def test_a_moment_of_more_after_a_restart_adds_nothing() -> None:
    world = full_world({"l4": 4})
    world.run(600)
    restart(world)
    world.rate *= 1.3
    found = world.run(15)
    assert world.counts == {"l4": 4}
    assert "the target, by traffic that has been watched for too short a time" in found.reason
    world.rate /= 1.3
    world.run(300)
    assert world.counts == {"l4": 4}


@pytest.mark.parametrize(
    ("replicas", "lengths", "seconds"),
    [(8, (1000, 200), 15), (4, (1000, 200), 30), (1, (1000, 200), 60), (1, (8000, 1000), 180)],
)
def test_traffic_that_doubles_as_the_operator_restarts_is_answered(
    replicas: int, lengths: tuple[int, int], seconds: float
) -> None:
    world = full_world({"l4": replicas}, lengths)
    restart(world)
    world.rate *= 2
    world.run(seconds)
    assert world.counts["l4"] > replicas


def test_requests_that_wait_after_a_restart_are_helped_at_once() -> None:
    world = full_world({"l4": 1})
    restart(world)
    world.num_waiting, world.oldest_seconds = 100, 9.0
    assert world.run(15).action == "Up"


def test_requests_that_wait_after_a_restart_are_not_told_to_wait_for_what_is_too_little() -> None:
    """One more is on its way, and four times as much is asked, in few long requests."""
    world = full_world({"l4": 1}, (8000, 1000))
    world.run(300)
    world.start_seconds = 600
    world.ordered["l4"] = 2
    world._add("l4")
    restart(world)
    world.rate *= 4
    world.num_waiting, world.oldest_seconds = 20, 9.0
    world.run(30)
    assert world.ordered["l4"] > 2


def test_lengths_that_are_guessed_add_nothing_while_something_serves() -> None:
    world = Unanswered(service("l4"), rate=12.0, ordered={"l4": 3})
    world.run(60)
    assert world.counts == {"l4": 3}


def test_while_nothing_serves_guessed_lengths_are_enough() -> None:
    world = Unanswered(service("l4"), rate=12.0, ordered={"l4": 3}, start_seconds=600)
    world.replicas = [replace(one, is_ready=False) for one in world.replicas]
    world.run(15)
    assert world.counts["l4"] > 3


def test_of_a_load_more_is_sure_the_more_was_counted_and_answered() -> None:
    def sure(seconds: int, rate: float, answers: float) -> float:
        samples = tuple(
            Sample(at=float(at), seconds=5.0, arrivals=(5.0 * rate,))
            for at in range(5, seconds + 1, 5)
        )
        known = Answers(ended=((answers,),), tokens=(1.0, 1.0, 0.0))
        memory = ServiceMemory(since=0.0, last_request_at=0.0, samples=samples, lasting=known)
        demand = estimate(memory, float(seconds))
        assert demand is not None
        return demand.sure

    assert sure(15, 10.0, 0.0) == 0.0
    assert sure(15, 500.0, 5000.0) > 0.85
    assert sure(15, 10.0, 100.0) < sure(60, 10.0, 400.0) < sure(200, 10.0, 1500.0) < 1.0
    assert sure(270, 0.2, 20.0) == 1.0


def test_one_is_told_from_several_in_words() -> None:
    world = World(service("l4"), rate=1.0, ordered={"l4": 1})
    world.num_waiting, world.oldest_seconds = 1, 0.1
    assert "while 1 request waits" in world.run(400).reason
    world.num_waiting, world.are_engines_heard = 0, False
    assert "the ready replica was not heard lately" in world.step().reason
    world.is_gateway_heard = False
    assert world.last is not None
    messages = [one.message for one in world.step().findings if one.code == "NoMetrics"]
    assert messages == [
        "the gateway and the ready replica were not heard lately: the replicas stay as they are"
    ]
