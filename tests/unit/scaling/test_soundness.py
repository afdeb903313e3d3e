"""Figures that cannot be, of one service: it stays as it is, and the others are decided."""

import logging
from dataclasses import replace

import pytest

from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import Decision, ScalingMemory
from quire_operator.scaling.inputs import MemoryPressure, ScalingInputs, ServiceInputs
from quire_operator.scaling.soundness import keep_sound
from tests.unit.scaling.worlds import World, capability, service

HUGE = 10**400
BAD, GOOD = "team/bad", "team/good"


class Pair:
    """Two services, of which one is told nonsense; both have too few replicas."""

    def __init__(self) -> None:
        self.bad = World(service("l4", "h100", key=BAD), rate=20.0, ordered={"l4": 1})
        self.good = World(service("l4", key=GOOD), rate=20.0, ordered={"l4": 1})
        self.memory = ScalingMemory()

    def step(self, **bad: object) -> Decision:
        """Decide once; the arguments are fields of the bad service."""
        seen: list[ServiceInputs] = []
        for world in (self.bad, self.good):
            world.now += 5.0
            world._arrive()
            seen.append(world.inputs().services[0])
        seen[0] = replace(seen[0], **bad)  # type: ignore[arg-type]
        inputs = ScalingInputs(now=self.good.now, services=tuple(seen))
        decision, self.memory = decide(inputs, self.memory)
        return decision


@pytest.mark.parametrize(
    "nonsense",
    [
        {"prompt_bounds": ()},
        {"output_bounds": ()},
        {"prompt_bounds": (0, 512, 2048, 8192, 32768)},
        {"prompt_bounds": (512, 128, 2048, 8192, 32768)},
        {"output_bounds": (32, 128, 512, HUGE)},
        {"arrivals": (HUGE,) * 6},
        {"arrivals": (10**30,) * 6},
        {"arrivals": (1, 2)},
        {"ended": ((1,),) * 6},
        {"ended": ((HUGE,) * 5,) * 6},
        {"prompt_tokens": HUGE},
        {"num_first_token_missed": HUGE},
        {"num_waiting": -1000},
        {"num_waiting": HUGE},
        {"oldest_seconds": float("nan")},
        {"seconds": float("inf")},
    ],
    ids=lambda one: "-".join(one),
)
def test_a_gateway_that_tells_nonsense_was_not_heard(nonsense: dict[str, object]) -> None:
    pair = Pair()
    for _ in range(5):
        gateway = replace(pair.bad.gateway(), **nonsense)  # type: ignore[arg-type]
        decision = pair.step(gateways=(gateway,))
    assert decision.of(GOOD).replicas["l4"] > 1
    held = decision.of(BAD)
    assert held.replicas == {"l4": 1, "h100": 0}
    words = [one.message for one in held.findings if one.code == "MetricsStale"]
    assert any("figures that cannot be" in one for one in words)
    assert "DecisionFailed" not in {one.code for one in held.findings}


def times(first: float, **changes: object) -> StepTimeModel:
    """A step-time model whose shortest step takes so long."""
    known = {
        "source": "told",
        "compute_tokens": (1, 8192),
        "compute_seconds": (first, 0.5),
        "limits": StepLimits(num_decodes=256, context_tokens=10**6, prefill_tokens=8192),
    }
    return StepTimeModel(**(known | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "nonsense",
    [
        {"num_blocks": HUGE},
        {"max_num_seqs": HUGE},
        {"block_size": 1 << 30},
        {"max_step_tokens": -1},
        {"step_time": times(1e-300)},
        {"step_time": times(0.01, compute_tokens=(1, HUGE))},
        {"step_time": times(0.01, seconds_per_pair=1e300)},
    ],
    ids=lambda one: "-".join(one),
)
def test_what_an_engine_cannot_be_is_not_planned_with(nonsense: dict[str, object]) -> None:
    pair = Pair()
    told = replace(capability("l4"), **nonsense)  # type: ignore[arg-type]
    replicas = [
        replace(one, engine=one.engine and replace(one.engine, capability=told))
        for one in pair.bad.inputs().services[0].replicas
    ]
    assert replicas[0].engine is not None
    found, findings = keep_sound(replace(pair.bad.service, replicas=tuple(replicas)))
    assert found.replicas[0].engine == replace(replicas[0].engine, capability=None)
    assert len(findings) == 1
    assert replicas[0].name in findings[0].message
    for _ in range(5):
        decision = pair.step(replicas=tuple(replicas))
    assert decision.of(GOOD).replicas["l4"] > 1
    assert sum(decision.of(BAD).replicas.values()) > 1, "it is planned with what is expected"


def test_sound_figures_stay_the_same_objects() -> None:
    seen = World(service("l4"), ordered={"l4": 2}).inputs().services[0]
    found, findings = keep_sound(seen)
    assert found == seen
    assert not findings
    pairs = zip(found.replicas, seen.replicas, strict=True)
    assert all(kept is told for kept, told in pairs)


def test_a_decision_that_fails_holds_one_service_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair()
    impossible = MemoryPressure(target=0.0)  # no resource has it: arithmetic fails
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            decision = pair.step(pressure=impossible)
    held = decision.of(BAD)
    assert not held.is_change
    assert held.replicas == {"l4": 1, "h100": 0}
    assert [one.code for one in held.findings] == ["DecisionFailed"]
    assert decision.of(GOOD).replicas["l4"] > 1
    assert len([one for one in caplog.records if BAD in one.getMessage()]) == 1
    for _ in range(5):
        decision = pair.step()
    assert not any(one.code == "DecisionFailed" for one in decision.of(BAD).findings)
    assert sum(decision.of(BAD).replicas.values()) > 1
