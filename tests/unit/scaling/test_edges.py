"""Prompts that are nearly too long for an accelerator: chance moves none over its edge."""

from collections import Counter

from quire_operator.scaling.inputs import GatewayFigures, ServiceLevel
from tests.unit.scaling.worlds import INTERVAL, OUTPUT_BOUNDS, PROMPT_BOUNDS, World, service

SHORT, LONG = (300, 300), (5000, 200)
"""Tokens of prompts and outputs. A T4 computes 5,000 in time, and not many more."""
PART_LONG = 0.2
LAG = round(60 / INTERVAL)
"""Rounds until what came is answered."""


class Mixed(World):
    """Short and long prompts by chance; answers come a while later."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.came: list[Counter[tuple[int, int]]] = [Counter()]

    def _arrive(self) -> None:
        num = self._count
        super()._arrive()
        now = Counter(self.came[-1])
        for _ in range(self._count - num):
            now[LONG if self._random.random() < PART_LONG else SHORT] += 1
        self.came.append(now)

    def gateway(self) -> GatewayFigures:
        answered = self.came[max(len(self.came) - 1 - LAG, 0)]
        arrivals = [0] * (len(PROMPT_BOUNDS) + 1)
        ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in arrivals]
        for lengths, num in self.came[-1].items():
            row, column = _place(lengths[0], PROMPT_BOUNDS), _place(lengths[1], OUTPUT_BOUNDS)
            arrivals[row] = num
            ended[row][column] = answered[lengths]
        return GatewayFigures(
            gateway="gateway-1",
            seconds=self.now - self._since,
            prompt_bounds=PROMPT_BOUNDS,
            output_bounds=OUTPUT_BOUNDS,
            arrivals=tuple(arrivals),
            ended=tuple(map(tuple, ended)),
            prompt_tokens=sum(prompt * num for (prompt, _), num in answered.items()),
            output_tokens=sum(output * num for (_, output), num in answered.items()),
        )


def _place(length: int, bounds: tuple[int, ...]) -> int:
    return sum(length > bound for bound in bounds)


def test_which_prompts_happen_to_come_buys_no_other_accelerator() -> None:
    slo = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.12)
    world = Mixed(service("t4", "a100-80", slo=slo), rate=0.2, ordered={"t4": 1}, seed=2)
    world.is_random = True
    world.run(2400)
    assert world.changes == []
