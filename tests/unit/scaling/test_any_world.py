"""What holds in any world: bounds are kept, and the same question has the same answer."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import Decision, ScalingMemory
from quire_operator.scaling.inputs import AcceleratorInputs, GpuStock, ScalingInputs, ServiceInputs
from tests.unit.scaling.worlds import INTERVAL, World, accelerator, capability, service

GPU_NAMES = ("t4", "l4", "h100")
CAPABILITIES = {name: capability(name) for name in GPU_NAMES}
NUM_PHASES = 3
NUM_STEPS = 15


@st.composite
def accelerators(draw: st.DrawFn) -> tuple[AcceleratorInputs, ...]:
    names = draw(st.lists(st.sampled_from(GPU_NAMES), min_size=1, max_size=3, unique=True))
    return tuple(
        accelerator(
            name,
            expected=CAPABILITIES[name] if draw(st.integers(0, 5)) else None,
            cost_per_hour=draw(st.sampled_from([None, 0.35, 0.8001, 7.5])),
            gpus_per_replica=draw(st.sampled_from([1, 1, 2])),
            min_replicas=draw(st.sampled_from([0, 0, 1])),
            max_replicas=draw(st.sampled_from([0, 3, 10])),
            provision_timeout_seconds=draw(st.sampled_from([0.0, 30.0])),
            unusable_because=draw(st.sampled_from(["", "", "", "the model does not fit"])),
        )
        for name in names
    )


@st.composite
def services(draw: st.DrawFn, number: int) -> ServiceInputs:
    least = draw(st.integers(0, 3))
    return service(
        key=f"team/s{number}",
        accelerators=draw(accelerators()),
        priority=draw(st.sampled_from([0, 0, 5])),
        min_replicas=least,
        max_replicas=least + draw(st.sampled_from([0, 1, 20])),
        max_cost_per_hour=draw(st.sampled_from([None, None, 1.6001, 10.0])),
        scale_to_zero_after_seconds=draw(st.sampled_from([None, 30.0])),
        down_seconds=30.0,
    )


@dataclass
class Shared:
    """Worlds of several services on the same nodes, decided together."""

    worlds: list[World]
    gpus: dict[str, int]
    """By name of the GPU."""
    is_final: bool
    memory: ScalingMemory = field(default_factory=ScalingMemory)

    def look(self) -> ScalingInputs:
        """Let five seconds pass."""
        for world in self.worlds:
            world.now += INTERVAL
            world._arrive()
            world.nodes = {name: self.free(name, world) for name in GPU_NAMES}
            world._start()
        product = {one.name: one.products[0] for one in map(accelerator, GPU_NAMES)}
        stock = (
            GpuStock(product=product[name], num_gpus=num, is_final=self.is_final)
            for name, num in self.gpus.items()
        )
        return ScalingInputs(
            now=self.worlds[0].now,
            services=tuple(one.inputs().services[0] for one in self.worlds),
            stock=tuple(stock),
        )

    def free(self, name: str, world: World) -> int:
        """Replicas that find a node in a world, by what the others have."""
        others = [one for one in self.worlds if one is not world]
        left = self.gpus[name] - sum(taken(one, name) for one in others)
        each = next((a.gpus_per_replica for a in world.service.accelerators if a.name == name), 1)
        return max(left, 0) // each


def taken(world: World, name: str) -> int:
    """GPUs that a service has."""
    each = next((a.gpus_per_replica for a in world.service.accelerators if a.name == name), 0)
    return each * sum(one.is_scheduled and one.accelerator == name for one in world.replicas)


def check_bounds(seen: ServiceInputs, decision: Decision) -> None:
    """All that the spec asks of one service."""
    found = decision.of(seen.key)
    codes = {one.code for one in found.findings}
    total = sum(found.replicas.values())
    assert "DecisionFailed" not in codes
    assert total <= seen.max_replicas
    assert total >= seen.min_replicas or "Infeasible" in codes
    assert all(0 <= found.replicas[a.name] <= a.max_replicas for a in seen.accelerators)
    assert found.is_change == (found.replicas != seen.ordered)
    if seen.max_cost_per_hour is not None:
        known = [a.cost_per_hour for a in seen.accelerators if not a.unusable_because]
        assumed = max((one for one in known if one is not None), default=1.0)
        prices = {a.name: a.cost_per_hour or assumed for a in seen.accelerators}
        cost = sum(prices[name] * count for name, count in found.replicas.items())
        assert cost <= seen.max_cost_per_hour + 1e-9


def check_stock(shared: Shared, inputs: ScalingInputs, decision: Decision) -> None:
    """Where there can never be more, no more GPUs are asked for than there are."""
    asked: Counter[str] = Counter()
    for one in inputs.services:
        for each in one.accelerators:
            asked[each.name] += decision.of(one.key).replicas[each.name] * each.gpus_per_replica
    assert all(count <= shared.gpus[name] for name, count in asked.items())


def apply(inputs: ScalingInputs, decision: Decision) -> ScalingInputs:
    """The same moment, with what was decided ordered."""
    return replace(
        inputs,
        services=tuple(
            replace(
                one,
                ordered=dict(decided.replicas),
                replicas=tuple(each for each in one.replicas if each.name not in decided.victims),
            )
            for one, decided in zip(inputs.services, decision.services, strict=True)
        ),
    )


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_bounds_are_kept_and_the_same_question_has_the_same_answer(data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 3))
    worlds = [
        World(data.draw(services(number)), start_seconds=data.draw(st.sampled_from([5.0, 60.0])))
        for number in range(num)
    ]
    shared = Shared(
        worlds,
        gpus={name: data.draw(st.integers(0, 6)) for name in GPU_NAMES},
        is_final=data.draw(st.booleans()),
    )
    for _ in range(NUM_PHASES):
        for world in worlds:
            world.rate = data.draw(st.sampled_from([0.0, 0.5, 5.0, 50.0]))
            world.num_waiting = data.draw(st.sampled_from([0, 0, 20]))
            failing = data.draw(st.sampled_from([0, 0, 1, 2]))
            world.replicas = [
                replace(one, is_failing=at < failing, is_ready=one.is_ready and at >= failing)
                for at, one in enumerate(world.replicas)
            ]
        for _ in range(NUM_STEPS):
            inputs = shared.look()
            decision, memory = decide(inputs, shared.memory)
            assert decide(inputs, shared.memory) == (decision, memory)
            assert not re.search(r"\bnan\b", repr((decision, memory)))
            for seen in inputs.services:
                check_bounds(seen, decision)
            if shared.is_final:
                check_stock(shared, inputs, decision)
            again = decide(apply(inputs, decision), memory)[0]
            assert {one.action for one in again.services} <= {"Hold", "Down"}
            shared.memory = memory
            for world in worlds:
                world._apply(decision.of(world.service.key))
