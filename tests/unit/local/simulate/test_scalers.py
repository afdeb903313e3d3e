"""Rivals of the operator's scaling do what they are known for."""

from typing import Any

import pytest

from quire_engine.errors import ConfigError
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.state import EngineState
from quire_local.simulate.fleet import Status
from quire_local.simulate.hardware import Limits
from quire_local.simulate.observing import GatewaySeen, Observation, ReplicaSeen
from quire_local.simulate.scalers.choosing import NAMES, Makers
from quire_local.simulate.scalers.fixed import FixedScaler
from quire_local.simulate.scalers.greedy import GreedyScaler
from quire_local.simulate.scalers.hpa import KedaScaler, KvUseScaler
from quire_local.simulate.simulation import Simulation, simulate
from quire_local.simulate.sizing import choose_single, size_windows
from tests.unit.local.simulate.builders import SLO, engine_types, scenario, traffic


@pytest.fixture(scope="module")
def state() -> EngineState:
    """What an engine said at the end of a short run."""
    simulation = Simulation(scenario(traffic(5.0, 2.0)), FixedScaler({"l4": 1}), lambda _: None)
    simulation.run()
    (replica,) = simulation.fleet.replicas
    assert replica.teller is not None
    assert replica.teller.state is not None
    return replica.teller.state


def observe(
    state: EngineState, *, now: float, ordered: int, use: float = 0.0, waiting: int = 0
) -> Observation:
    simulation = Simulation(scenario(), FixedScaler({"l4": 1}), lambda _: None)
    gateway = simulation.gateways[0]
    blocks = state.blocks.__replace__(held=round(use * state.blocks.total))
    fields: dict[str, Any] = {"engine_type": "l4", "status": Status.READY, "waiting_since": None}
    return Observation(
        now=now,
        types=engine_types("l4", "a100-80"),
        ordered={"l4": ordered, "a100-80": 0},
        replicas=[
            ReplicaSeen(
                name=f"l4-{n}", state=state.__replace__(blocks=blocks), silent_seconds=0.0, **fields
            )
            for n in range(ordered)
        ],
        gateways=[
            GatewaySeen(
                name="g",
                demand=gateway.service.arrivals.report(now),
                num_waiting=waiting,
                oldest_seconds=0.0,
            )
        ],
    )


def test_keda_wants_a_replica_for_each_five_that_wait(state: EngineState) -> None:
    scaler = KedaScaler("l4", first_replicas=2, min_replicas=1, max_replicas=20)
    for at, waiting, ordered, wanted in (
        (0.0, 10, 2, 2),
        (15.0, 26, 2, 6),
        (30.0, 500, 6, 12),  # at most doubled
        (45.0, 0, 12, 12),  # 5 minutes must pass
        (200.0, 0, 12, 12),
        (331.0, 0, 12, 1),
    ):
        seen = observe(state, now=at, ordered=ordered, waiting=waiting)
        assert scaler.decide(seen).replicas == {"l4": wanted}


def test_hpa_holds_four_fifths_of_the_blocks_in_use(state: EngineState) -> None:
    scaler = KvUseScaler("l4", first_replicas=4, min_replicas=1, max_replicas=20)
    for at, use, ordered, wanted in (
        (0.0, 0.8, 4, 4),
        (15.0, 0.85, 4, 4),  # within a tenth
        (30.0, 0.95, 4, 5),
        (45.0, 0.3, 5, 5),
        (400.0, 0.3, 5, 2),
    ):
        seen = observe(state, now=at, ordered=ordered, use=use)
        assert scaler.decide(seen).replicas == {"l4": wanted}


def test_greedy_adds_the_cheapest_and_takes_away_the_dearest(state: EngineState) -> None:
    types = {one.name: one for one in engine_types("l4", "a100-80")}
    scaler = GreedyScaler(types, {"l4": 1}, 10)
    added = scaler.decide(observe(state, now=0.0, ordered=2, use=0.95))
    assert added.replicas == {"l4": 3}
    for at in (30.0, 329.0):
        assert scaler.decide(observe(state, now=at, ordered=3, use=0.1)).replicas == {}
    seen = observe(state, now=331.0, ordered=3, use=0.1)
    mixed = seen.__class__(**{**seen.__dict__, "ordered": {"l4": 3, "a100-80": 1}})
    assert scaler.decide(mixed).replicas == {"a100-80": 0}


def test_the_oracles_mix_costs_no_more_than_any_type_alone() -> None:
    types = engine_types("t4", "l4", "a100-80", "h100")
    trace = traffic(900.0, 8.0, kind="diurnal")
    mix = sum(one.dollars for one in size_windows(trace, types, SLO, limits=Limits()))
    single = choose_single(trace, types, SLO, limits=Limits())
    alone = size_windows(trace, [single], SLO, limits=Limits())
    assert all(one.unserved < 1e-3 for one in alone)
    assert mix <= sum(one.dollars for one in alone) * 1.01


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fixed"])
def test_each_scaler_keeps_light_traffic_and_repeats_itself(name: str) -> None:
    made = scenario(traffic(90.0, 1.5))
    results = [simulate(made, Makers(scenario=made).make(name)) for _ in range(2)]
    assert results[0] == results[1]
    assert results[0].attainment > 0.9
    assert results[0].num_lost == 0
    assert results[0].dollars > 0


def test_a_scaler_that_there_is_not_is_refused() -> None:
    made = scenario()
    with pytest.raises(ConfigError, match="unknown scaler 'best'"):
        Makers(scenario=made).make("best")
    with pytest.raises(ConfigError, match=r"needs --fixed .*, not of tpu"):
        Makers(scenario=made, fixed={"tpu": 1}).make("fixed")
    with pytest.raises(ConfigError, match="needs --fixed"):
        Makers(scenario=made).make("fixed")


def test_bursts_that_come_again_are_held_for_and_not_chased() -> None:
    """Each is over before a replica has started: what comes too late for one serves the next."""
    bursts = [
        TraceRequest(
            arrival_seconds=180.0 * burst + at, num_prompt_tokens=4000, num_output_tokens=220
        )
        for burst in range(16)
        for at in (*(0.375 * n for n in range(40)), *(20.0 + 5.0 * n for n in range(30)))
    ]
    bursty = scenario(bursts, engine_types("l4"))
    result = simulate(bursty, Makers(scenario=bursty).make("quire"))

    assert result.attainment > 0.95
    # given back when they are ready and ordered anew at each burst, they would be 26
    assert sum(one.at > 1080.0 for one in result.decisions) < 8
