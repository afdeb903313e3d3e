"""A small world for scaling: a gateway that counts, engines whose pressure follows the traffic.

Fluid: requests come as a Poisson process or a constant stream, and what runs follows from rates
and capacities at once. What scaling orders comes after a while.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from quire_engine.profiles.capacity import count_kv_blocks
from quire_engine.profiles.gpus import GPUS
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import Quantization, find_shape
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import Decision, ScalingMemory, ServiceDecision
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    Capability,
    EngineFigures,
    GatewayFigures,
    GpuStock,
    LeavingInputs,
    Replica,
    ScalingInputs,
    ServiceInputs,
    ServiceLevel,
)

PROMPT_BOUNDS = (128, 512, 2048, 8192, 32768)
OUTPUT_BOUNDS = (32, 128, 512, 2048)
KEY = "team/chat"
INTERVAL = 5.0


def capability(
    gpu: str, quantization: Quantization = "int4", shape: str = "llama3-8b"
) -> Capability:
    """One of the catalogues."""
    card, model = GPUS[gpu], find_shape(shape)
    num_blocks = count_kv_blocks(
        card, model, quantization=quantization, max_num_batched_tokens=8192
    )
    return Capability(
        step_time=estimate_step_time(card, model, quantization=quantization),
        num_blocks=num_blocks - 1,
        block_size=16,
        max_num_seqs=256,
        max_step_tokens=8192,
    )


def accelerator(gpu: str, **changes: object) -> AcceleratorInputs:
    """One GPU of the catalogue."""
    known = {
        "name": gpu,
        "products": GPUS[gpu].products[:1],
        "cost_per_hour": GPUS[gpu].dollars_per_hour,
        "expected": capability(gpu),
    }
    return AcceleratorInputs(**(known | changes))  # type: ignore[arg-type]


def service(*gpus: str, **changes: object) -> ServiceInputs:
    """A chat service on these GPUs."""
    known = {
        "key": KEY,
        "accelerators": tuple(map(accelerator, gpus)),
        "slo": ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.06),
        "max_replicas": 30,
    }
    return ServiceInputs(**(known | changes))  # type: ignore[arg-type]


@dataclass
class World:
    """One service in virtual time."""

    service: ServiceInputs
    rate: float = 1.0
    """Requests per second."""
    lengths: tuple[int, int] = (1000, 200)
    is_random: bool = False
    start_seconds: float = 60.0
    seed: int = 1
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Most replicas that find a node, by accelerator; what is not named has no limit."""
    stock: tuple[GpuStock, ...] = ()
    now: float = 1_000_000.0
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    ordered: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)
    """Of accelerators that the spec has no more."""
    replicas: list[Replica] = field(default_factory=list)
    changes: list[tuple[float, dict[str, int], str]] = field(default_factory=list)
    pressure: float | None = None
    """Of every replica; None: as the traffic makes it."""
    binding: str = "blocks"
    """Of what is said of pressure; what the traffic makes is of steps' time."""
    is_gateway_heard: bool = True
    are_engines_heard: bool = True
    silent_since: dict[str, float] = field(default_factory=dict)
    """Replicas that said something then, and nothing since."""
    num_waiting: int = 0
    oldest_seconds: float = 0.0
    last: ServiceDecision | None = None
    _count: int = 0
    _number: int = 0
    _since: float = 0.0
    _arrived: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._since = self.now
        self._made: dict[str, float] = {}
        self._products: dict[str, tuple[str, ...]] = {}
        self.ordered = {one.name: 0 for one in self.service.accelerators} | self.ordered
        for name, count in self.ordered.items():
            for _ in range(count):
                self._add(name, is_ready=True)

    def run(self, seconds: float) -> ServiceDecision:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until:
            self.step()
        assert self.last is not None
        return self.last

    def step(self) -> ServiceDecision:
        """Let five seconds pass, and decide."""
        self.now += INTERVAL
        self._arrive()
        self._start()
        self.last = self.look().of(self.service.key)
        self._apply(self.last)
        return self.last

    def look(self) -> Decision:
        """Decide, and apply nothing."""
        decision, self.memory = decide(self.inputs(), self.memory)
        return decision

    def inputs(self) -> ScalingInputs:
        """As they are now."""
        seen = replace(
            self.service,
            replicas=tuple(self._seen(one) for one in self.replicas),
            ordered=dict(self.ordered),
            leaving=tuple(
                LeavingInputs(name=name, replicas=count, products=self._products[name])
                for name, count in self.leaving.items()
            ),
            gateways=(self.gateway(),) if self.is_gateway_heard else (),
        )
        return ScalingInputs(now=self.now, services=(seen,), stock=self.stock)

    def gateway(self) -> GatewayFigures:
        """What the gateway has counted."""
        row = next((i for i, b in enumerate(PROMPT_BOUNDS) if self.lengths[0] <= b), 5)
        column = next((i for i, b in enumerate(OUTPUT_BOUNDS) if self.lengths[1] <= b), 4)
        arrivals = [0] * (len(PROMPT_BOUNDS) + 1)
        arrivals[row] = self._count
        ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in arrivals]
        ended[row][column] = self._count
        return GatewayFigures(
            gateway="gateway-1",
            seconds=self.now - self._since,
            prompt_bounds=PROMPT_BOUNDS,
            output_bounds=OUTPUT_BOUNDS,
            arrivals=tuple(arrivals),
            ended=tuple(map(tuple, ended)),
            prompt_tokens=self._count * self.lengths[0],
            output_tokens=self._count * self.lengths[1],
            num_waiting=self.num_waiting,
            oldest_seconds=self.oldest_seconds,
        )

    def change(self, *accelerators: AcceleratorInputs) -> None:
        """Let the spec have these in place of what it has."""
        names = {one.name for one in accelerators}
        self._products |= {one.name: one.products for one in self.service.accelerators}
        there = {**self.leaving, **self.ordered}
        self.leaving = {name: count for name, count in there.items() if name not in names and count}
        self.ordered = {name: there.get(name, 0) for name in sorted(names)}
        self.service = replace(self.service, accelerators=accelerators)

    @property
    def num_serving(self) -> int:
        """Replicas that are ready."""
        return sum(one.is_ready for one in self.replicas)

    @property
    def counts(self) -> dict[str, int]:
        """Ordered replicas, without zeros."""
        return {name: count for name, count in self.ordered.items() if count}

    @property
    def cost(self) -> float:
        """Of what is ordered, an hour."""
        prices = {one.name: one.cost_per_hour or 0.0 for one in self.service.accelerators}
        return sum(prices[name] * count for name, count in self.ordered.items())

    def _arrive(self) -> None:
        mean = self.rate * INTERVAL
        if self.is_random:
            self._count += self._poisson(mean)
            return
        self._arrived += mean
        self._count = math.floor(self._arrived)

    def _poisson(self, mean: float) -> int:
        count, passed = 0, self._random.expovariate(1.0)
        while passed < mean:
            count += 1
            passed += self._random.expovariate(1.0)
        return count

    def _add(self, name: str, *, is_ready: bool = False) -> None:
        self._number += 1
        made = Replica(
            name=f"{name}-{self._number:04}",
            accelerator=name,
            is_scheduled=is_ready,
            is_ready=is_ready,
        )
        self._made[made.name] = self.now
        self.replicas.append(made)

    def _start(self) -> None:
        """Give nodes, and let engines become ready."""
        found: list[Replica] = []
        for one in self.replicas:
            scheduled = sum(
                other.is_scheduled and other.accelerator == one.accelerator
                for other in (*found, *self.replicas[len(found) :])
            )
            if not one.is_scheduled:
                if scheduled < self.nodes.get(one.accelerator, 1 << 20):
                    one = replace(one, is_scheduled=True, waiting_since=None)
                    self._made[one.name] = self.now
                elif one.waiting_since is None:
                    one = replace(one, waiting_since=self.now)
            elif not one.is_ready and self.now - self._made[one.name] >= self.start_seconds:
                one = replace(one, is_ready=True)
            found.append(one)
        self.replicas = found

    def _seen(self, one: Replica) -> Replica:
        if not one.is_ready or not self.are_engines_heard:
            return one
        num_ready = sum(other.is_ready for other in self.replicas)
        pressure, binding = self.pressure, self.binding
        if pressure is None:
            binding = "step"
            pressure = min(self.rate / max(num_ready, 1) / 10, 0.7)
        held = 100 + int(one.name[-4:]) % 7
        return replace(
            one,
            engine=EngineFigures(
                age_seconds=0.5 + self.now - self.silent_since.get(one.name, self.now),
                pressure=pressure,
                binding=binding,
                num_held_blocks=held,
                num_blocks=1000,
                num_running=30 * int(self.rate > 0),
            ),
        )

    def _apply(self, decision: ServiceDecision) -> None:
        wanted, leaving = dict(decision.replicas), dict(decision.leaving)
        if wanted == self.ordered and leaving == self.leaving:
            return
        self.changes.append((self.now, wanted, f"{decision.action}: {decision.reason}"))
        self.replicas = [one for one in self.replicas if one.name not in decision.victims]
        for name in self.leaving:
            there = sum(one.accelerator == name for one in self.replicas)
            assert there <= leaving.get(name, 0), "victims must be named"
        self.leaving = {name: count for name, count in leaving.items() if count}
        for name, count in wanted.items():
            there = sum(one.accelerator == name for one in self.replicas)
            assert there <= count, "victims must be named"
            for _ in range(count - there):
                self._add(name)
        self.ordered = wanted


def codes(world: World) -> set[str]:
    """What is found."""
    assert world.last is not None
    return {one.code for one in world.last.findings}
