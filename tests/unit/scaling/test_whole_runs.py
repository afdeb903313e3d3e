"""What holds over whole runs, whatever comes: no flapping, nothing taken away for bad figures."""

import copy
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.inputs import EngineFigures, GatewayFigures, MemoryPressure
from tests.unit.scaling.worlds import INTERVAL, World, service

NONSENSE = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, -1e18])


@pytest.mark.parametrize(("rate", "lengths"), [(0.8, (1500, 200)), (4.0, (1000, 200))])
def test_steady_traffic_on_mixed_gpus_settles_and_stays(
    rate: float, lengths: tuple[int, int]
) -> None:
    world = World(service("t4", "l4"), rate=rate, lengths=lengths, is_random=True)
    world.ordered, world.replicas = {"t4": 0, "l4": 0}, []
    world.run(600)
    settled = len(world.changes)
    world.run(1200)
    assert world.changes[settled:] == []


def test_an_operator_that_restarts_every_minute_changes_nothing() -> None:
    world = World(service("t4", "l4"), rate=4.0, is_random=True, ordered={"t4": 2, "l4": 1})
    world.run(600)
    before = dict(world.ordered)
    for _ in range(8):
        world.memory = ScalingMemory()
        world.run(60)
        assert world.ordered == before


def test_a_lower_target_never_costs_less() -> None:
    costs = []
    for target in (0.9, 0.75, 0.6, 0.45):
        pressure = MemoryPressure(target=target, background=0.92, admission=0.95)
        world = World(service("t4", "l4", pressure=pressure), rate=6.0, ordered={"l4": 1})
        world.run(120)
        costs.append(world.cost)
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.fixture(scope="module")
def about_to_shrink() -> World:
    """A world that takes replicas away in its next step."""
    world = World(service("t4", "l4"), rate=6.0, ordered={"t4": 5})
    world.run(400)
    world.rate = 0.5
    while copy.deepcopy(world).step().action != "Down":
        world.step()
    assert world.look().of(world.service.key).action == "Hold"
    return world


@settings(max_examples=25, deadline=None)
@given(number=NONSENSE, where=st.sampled_from(["age", "seconds", "pressure", "engine age"]))
def test_figures_that_make_no_sense_take_nothing_away(
    about_to_shrink: World, number: float, where: str
) -> None:
    inputs = about_to_shrink.inputs()
    one = inputs.services[0]
    gateway, replicas = one.gateways[0], one.replicas
    if where in ("age", "seconds"):
        gateway = _with(gateway, "age_seconds" if where == "age" else "seconds", number)
    else:
        name = "pressure" if where == "pressure" else "age_seconds"
        replicas = tuple(
            replace(each, engine=_engine(each.engine, name, number)) for each in replicas
        )
    spoilt = replace(one, gateways=(gateway,), replicas=replicas)
    memory, now = about_to_shrink.memory, about_to_shrink.now
    for _ in range(3):
        now += INTERVAL
        decision, memory = decide(replace(inputs, now=now, services=(spoilt,)), memory)
        found = decision.of(one.key)
        assert all(found.replicas[name] >= count for name, count in one.ordered.items())
        assert found.victims == ()


def _with(gateway: GatewayFigures, name: str, number: float) -> GatewayFigures:
    return replace(gateway, **{name: number})  # type: ignore[arg-type]  # floats, both


def _engine(engine: EngineFigures | None, name: str, number: float) -> EngineFigures | None:
    assert engine is not None
    return replace(engine, **{name: number})  # type: ignore[arg-type]  # floats, both
