"""Blocks and seats that are taken, as requests: of the lengths that come now."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.inputs import GatewayFigures, Replica, ServiceInputs, ServiceLevel
from tests.unit.scaling.worlds import OUTPUT_BOUNDS, PROMPT_BOUNDS, World, service

SLO = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.12)
FULL = 0.72
"""Pressure of blocks: at 96 % of the target."""
Lengths = tuple[int, int]


class Shifting(World):
    """Counts requests by the lengths that they came with; blocks are taken as the test says."""

    def __init__(self, seen: ServiceInputs, ordered: Mapping[str, int], lengths: Lengths) -> None:
        super().__init__(seen, ordered=dict(ordered), lengths=lengths, pressure=FULL)
        self.counted: Counter[Lengths] = Counter()

    def gateway(self) -> GatewayFigures:
        self.counted[self.lengths] += self._count - self.counted.total()
        arrivals = [0] * (len(PROMPT_BOUNDS) + 1)
        ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in arrivals]
        for (prompt, output), num in self.counted.items():
            row = sum(prompt > bound for bound in PROMPT_BOUNDS)
            arrivals[row] += num
            ended[row][sum(output > bound for bound in OUTPUT_BOUNDS)] += num
        return replace(
            super().gateway(),
            arrivals=tuple(arrivals),
            ended=tuple(map(tuple, ended)),
            prompt_tokens=sum(prompt * num for (prompt, _), num in self.counted.items()),
            output_tokens=sum(output * num for (_, output), num in self.counted.items()),
        )

    def fill(self, able: float) -> None:
        """Let as many come as take what is taken, where an H100 does so many at the target."""
        self.rate = FULL / 0.75 * able * self.ordered["h100"]


def able_of(lengths: Lengths) -> float:
    """Requests per second of an H100 at the target."""
    calm = Shifting(service("h100", slo=SLO), {"h100": 1}, lengths)
    calm.rate = 2.0
    able = calm.run(600).accelerators["h100"].requests_per_second
    assert able is not None
    return able


def test_after_a_restart_long_requests_are_not_taken_for_more_short_ones() -> None:
    lengths = (3000, 800)
    world = Shifting(service("h100", slo=SLO), {"h100": 5}, lengths)
    world.fill(able_of(lengths))
    world.run(600)
    world.memory = ScalingMemory()
    world.run(600)
    assert world.changes == []


def test_fewer_but_longer_requests_that_take_as_much_add_nothing() -> None:
    before, after = (300, 150), (6000, 100)
    world = Shifting(service("h100", slo=SLO), {"h100": 5}, before)
    world.fill(able_of(before))
    world.run(900)
    world.lengths = after
    world.fill(able_of(after))
    world.run(900)
    assert world.changes == []


class Late(Shifting):
    """T4s are as full as H100s are, by requests that they serve too late."""

    def _seen(self, one: Replica) -> Replica:
        seen = super()._seen(one)
        pressure = {"t4": FULL, "h100": 0.5}[one.accelerator]
        return replace(seen, engine=seen.engine and replace(seen.engine, pressure=pressure))


def test_what_serves_too_late_is_not_as_full_as_what_serves_in_time() -> None:
    """Prompts are too long for T4s, whose blocks are taken by a few of them."""
    lengths = (6000, 100)
    world = Late(service("t4", "h100", slo=SLO), {"t4": 12, "h100": 5}, lengths)
    world.rate = 4.5 * able_of(lengths)
    world.run(900)
    assert all(counts["h100"] == 5 for _, counts, _ in world.changes)
    assert world.counts["t4"] <= 2
