"""How long a decision takes: `python -m benchmarks.scaling_decisions [--json FILE]`.

20 services on 8 accelerators each, with requests of 100 buckets of lengths, are decided every five
simulated seconds, first as many as it takes to know them; then 30 times while rates are steady, 30
while half of the requests stay away, and 30 while they come back three times as many. Replicas
follow the decisions. Seconds are of the processor.

    median, p99   of the decisions of a phase: with 30 of them the highest
    goal_seconds  for all services together
"""

import argparse
import json
import math
import os
import random
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from quire_engine.profiles.capacity import count_kv_blocks
from quire_engine.profiles.gpus import GPUS
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import find_shape
from quire_engine.startup_heap import freeze_startup_heap
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory, ServiceDecision
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    Capability,
    EngineFigures,
    GatewayFigures,
    Replica,
    ScalingInputs,
    ServiceInputs,
    ServiceLevel,
)

_GOAL_SECONDS = 0.2
_NUM_SERVICES = 20
_PROMPT_BOUNDS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_OUTPUT_BOUNDS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_GPUS = ("t4", "l4", "a10g", "a100-40", "a100-80", "h100", "h200")
"""By name: a catalogue that grows must not make decisions slower to compare."""
_SPOT = "l4-spot"
_SPOT_PRICE = 0.6
"""Of the price of the same without notice."""
_INTERVAL = 5.0
_START_SECONDS = 60.0
_WATCHED = 66
"""Decisions until a whole stabilization window is known."""
_MEASURED = 30
_PHASES = {"steady": 1.0, "falling": 0.5, "rising": 1.5}
"""Rates, of those at first."""


@dataclass
class Simulated:
    """One service: its gateway's counts, and replicas that come after a while."""

    inputs: ServiceInputs
    rate: float
    weights: tuple[float, ...]
    """Of the buckets, row by row."""
    counts: list[int] = field(default_factory=lambda: [0] * 100)
    made_at: dict[str, float] = field(default_factory=dict)
    ordered: dict[str, int] = field(default_factory=dict)

    def see(self, now: float, times: float, chance: random.Random) -> ServiceInputs:
        """What happened in the last interval."""
        mean = self.rate * times * _INTERVAL
        num = max(round(chance.gauss(mean, math.sqrt(mean))), 0)
        for index in chance.choices(range(100), self.weights, k=num):
            self.counts[index] += 1
        return replace(
            self.inputs,
            gateways=(self._gateway(now),),
            replicas=tuple(self._replica(name, now) for name in self.made_at),
            ordered=dict(self.ordered),
        )

    def follow(self, decision: ServiceDecision, now: float) -> None:
        """Let replicas go and come."""
        for name in decision.victims:
            del self.made_at[name]
        self.ordered = dict(decision.replicas)
        for accelerator, count in self.ordered.items():
            there = sum(_accelerator_of(name) == accelerator for name in self.made_at)
            for _ in range(count - there):
                self.made_at[f"{accelerator}/{len(self.made_at)}-{now:.0f}"] = now

    def _gateway(self, now: float) -> GatewayFigures:
        rows = [tuple(self.counts[start : start + 10]) for start in range(0, 100, 10)]
        num = sum(self.counts)
        return GatewayFigures(
            gateway="gateway",
            seconds=now,
            prompt_bounds=_PROMPT_BOUNDS,
            output_bounds=_OUTPUT_BOUNDS,
            arrivals=tuple(map(sum, rows)),
            ended=tuple(rows),
            prompt_tokens=num * 1000,
            output_tokens=num * 200,
        )

    def _replica(self, name: str, now: float) -> Replica:
        is_ready = now - self.made_at[name] >= _START_SECONDS
        figures = EngineFigures(
            age_seconds=0.5, pressure=0.6, binding="step", num_held_blocks=5, num_blocks=100
        )
        return Replica(
            name=name,
            accelerator=_accelerator_of(name),
            is_ready=is_ready,
            engine=figures if is_ready else None,
        )


def _accelerator_of(name: str) -> str:
    return name.split("/")[0]


def _accelerators() -> tuple[AcceleratorInputs, ...]:
    """Seven types, and one of them again for less."""
    made = {name: _accelerator(name) for name in _GPUS}
    made[_SPOT] = replace(made["l4"], name=_SPOT)
    made[_SPOT] = replace(made[_SPOT], cost_per_hour=_SPOT_PRICE * GPUS["l4"].dollars_per_hour)
    return tuple(made.values())


def _accelerator(name: str) -> AcceleratorInputs:
    gpu, shape = GPUS[name], find_shape("llama3-8b")
    blocks = count_kv_blocks(gpu, shape, quantization="int4", max_num_batched_tokens=8192)
    return AcceleratorInputs(
        name=name,
        products=gpu.products[:1],
        cost_per_hour=gpu.dollars_per_hour,
        max_replicas=20,
        expected=Capability(
            step_time=estimate_step_time(gpu, shape, quantization="int4"),
            num_blocks=blocks - 1,
            block_size=16,
            max_num_seqs=256,
            max_step_tokens=8192,
        ),
    )


def make_services() -> list[Simulated]:
    """Each with lengths and a rate of its own."""
    accelerators = _accelerators()
    made = []
    for number in range(_NUM_SERVICES):
        chance = random.Random(number)
        # around lengths that a request of this service usually has
        row, column = chance.uniform(2, 6), chance.uniform(2, 6)
        weights = tuple(
            math.exp(-((at // 10 - row) ** 2 + (at % 10 - column) ** 2) / 8) for at in range(100)
        )
        inputs = ServiceInputs(
            key=f"team/{number:02}",
            is_new=True,
            max_replicas=100,
            slo=ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.06),
            accelerators=accelerators,
        )
        ordered = {one.name: 0 for one in accelerators}
        made.append(Simulated(inputs, rate=1.0 + number, weights=weights, ordered=ordered))
    return made


class World:
    """All services, decided together."""

    def __init__(self) -> None:
        self.services = make_services()
        self._chance = random.Random(0)
        self._memory = ScalingMemory()
        self._now = 1000.0
        self.num_changes = 0

    def decide(self, times: float) -> float:
        """Decide once; returns the processor time that it took."""
        self._now += _INTERVAL
        seen = tuple(one.see(self._now, times, self._chance) for one in self.services)
        inputs = ScalingInputs(now=self._now, services=seen)
        began = time.process_time()
        decision, self._memory = decide(inputs, self._memory)
        seconds = time.process_time() - began
        for one, decided in zip(self.services, decision.services, strict=True):
            one.follow(decided, self._now)
            one.inputs = replace(one.inputs, is_new=False)
            self.num_changes += decided.is_change
        return seconds

    @property
    def num_replicas(self) -> int:
        """Of all services."""
        return sum(len(one.made_at) for one in self.services)


def measure() -> dict[str, object]:
    """All phases."""
    world = World()
    freeze_startup_heap()  # as the operator does, before it decides anything
    first = [world.decide(1.0) for _ in range(_WATCHED)]
    figures: dict[str, object] = {"first": _figures(first, world, 0)}
    measured = []
    for name, times in _PHASES.items():
        before = world.num_changes
        seconds = [world.decide(times) for _ in range(_MEASURED)]
        measured += seconds
        figures[name] = _figures(seconds, world, before)
    figures["all"] = _figures(measured, world, 0)
    return figures


def _figures(seconds: list[float], world: World, changes_before: int) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "decisions": len(ordered),
        "median_seconds": round(statistics.median(ordered), 4),
        "p99_seconds": round(ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)], 4),
        "changes": world.num_changes - changes_before,
        "replicas_at_the_end": world.num_replicas,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    accelerators = _accelerators()
    figures = {
        "services": _NUM_SERVICES,
        "accelerators": len(accelerators),
        "buckets": (len(_PROMPT_BOUNDS) + 1) * (len(_OUTPUT_BOUNDS) + 1),
        "goal_seconds": _GOAL_SECONDS,
        "load_average": os.getloadavg()[0],
        **measure(),
    }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
