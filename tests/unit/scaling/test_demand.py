"""From gateways' counts to rates."""

import pytest

from quire_operator.scaling.answers import buckets
from quire_operator.scaling.decision import ServiceMemory
from quire_operator.scaling.demand import estimate, note_part, remember, sustained
from quire_operator.scaling.inputs import GatewayFigures
from tests.unit.scaling.worlds import OUTPUT_BOUNDS, PROMPT_BOUNDS, World, service

BOUNDS = (PROMPT_BOUNDS, OUTPUT_BOUNDS)


def figures(count: int, seconds: float, gateway: str = "a", **changes: object) -> GatewayFigures:
    """A gateway that had so many requests of the second bucket."""
    known = {
        "gateway": gateway,
        "seconds": seconds,
        "prompt_bounds": PROMPT_BOUNDS,
        "output_bounds": OUTPUT_BOUNDS,
        "arrivals": (0, count, 0, 0, 0, 0),
        "ended": ((0,) * 5, (0, 0, count, 0, 0), (0,) * 5, (0,) * 5, (0,) * 5, (0,) * 5),
        "prompt_tokens": 300 * count,
        "output_tokens": 250 * count,
    }
    return GatewayFigures(**(known | changes))  # type: ignore[arg-type]


def watch(*steps: tuple[GatewayFigures, ...], num_gateways: int = 1) -> ServiceMemory:
    """Remember reports that came every five seconds."""
    seen = service("l4", num_gateways=num_gateways)
    memory = ServiceMemory(since=0.0, last_request_at=0.0)
    for at, gateways in enumerate(steps):
        memory = remember(seen, gateways, memory, 5.0 * at)
    return memory


def rate_of(memory: ServiceMemory, num_steps: int) -> float:
    """The estimate after so many reports."""
    found = estimate(memory, 5.0 * (num_steps - 1))
    assert found is not None
    return found.rate


def test_a_rate_is_a_difference_of_counts() -> None:
    steps = [(figures(1000 + 20 * at, 700 + 5 * at),) for at in range(10)]
    assert rate_of(watch(*steps), 10) == pytest.approx(4.0)


def test_too_little_says_nothing() -> None:
    memory = watch((figures(1000, 700),), (figures(1010, 705),))
    assert estimate(memory, 5.0) is None


def test_counts_of_all_gateways_add_up() -> None:
    steps = [(figures(20 * at, 5 * at), figures(10 * at, 5 * at, gateway="b")) for at in range(10)]
    assert rate_of(watch(*steps, num_gateways=2), 10) == pytest.approx(6.0)


def test_a_gateway_that_starts_anew_takes_nothing_back() -> None:
    steps = [(figures(20 * at, 5 * at),) for at in range(6)]
    steps += [(figures(20 * at, 5 * at),) for at in range(1, 6)]
    assert rate_of(watch(*steps), 11) == pytest.approx(4.0)


def test_a_gateway_that_was_silent_for_a_while_makes_no_peak() -> None:
    def both(at: int) -> tuple[GatewayFigures, ...]:
        return figures(20 * at, 5 * at), figures(20 * at, 5 * at, gateway="b")

    silent = [(figures(20 * at, 5 * at),) for at in range(6, 12)]
    memory = watch(
        *[both(at) for at in range(6)], *silent, *[both(at) for at in range(12, 20)], num_gateways=2
    )
    assert rate_of(memory, 20) == pytest.approx(8.0, rel=0.1)


def test_a_sudden_change_is_believed_soon_and_noise_is_not() -> None:
    world = World(service("l4"), rate=4.0, is_random=True)
    world.run(600)
    calm = world.last
    assert calm is not None
    assert calm.requests_per_second == pytest.approx(4.0, rel=0.15)
    world.rate = 20.0
    risen = world.run(30)
    assert risen.requests_per_second is not None
    assert risen.requests_per_second > 12.0
    world.rate = 4.0
    world.run(120)
    assert world.last is not None
    assert world.last.requests_per_second == pytest.approx(4.0, rel=0.5)


@pytest.mark.parametrize("per_second", [2, 20])
def test_nobody_asks_soon_after_the_load_has_ended(per_second: int) -> None:
    counts = [5 * per_second * min(at, 24) for at in range(37)]
    steps = [(figures(count, 5 * at),) for at, count in enumerate(counts)]
    found = estimate(watch(*steps), 5.0 * (len(steps) - 1))
    assert found is not None
    assert found.rate < 0.05
    assert found.dispersion < 1.5


def test_bursts_are_dispersion_and_a_change_of_the_rate_is_none() -> None:
    def dispersion(counts: list[int]) -> float:
        sums = [sum(counts[: at + 1]) for at in range(len(counts))]
        steps = [(figures(count, 5 * at),) for at, count in enumerate(sums)]
        found = estimate(watch(*steps), 5.0 * (len(steps) - 1))
        assert found is not None
        return found.dispersion

    assert dispersion([0, *[10] * 20, *[60] * 20]) == 1.0
    assert dispersion([0, *[0, 0, 30] * 13]) > 3.0


def test_lengths_are_those_that_were_measured() -> None:
    steps = [(figures(20 * at, 5 * at),) for at in range(30)]
    memory = watch(*steps)
    demand = estimate(memory, 145.0)
    assert demand is not None
    found = buckets(memory, demand.prompt_rates, BOUNDS)
    rate = sum(one.rate for one in found)
    assert rate == pytest.approx(4.0)
    assert sum(one.rate * one.prompt_tokens for one in found) / rate == pytest.approx(300, rel=0.02)
    assert sum(one.rate * one.output_tokens for one in found) / rate == pytest.approx(250, rel=0.05)


def test_what_is_cached_is_not_computed() -> None:
    steps = [(figures(20 * at, 5 * at, cached_tokens=240 * 20 * at),) for at in range(10)]
    memory = watch(*steps)
    found = buckets(memory, (0.0, 1.0), BOUNDS)
    assert found[0].prefill_tokens == pytest.approx(0.2 * found[0].prompt_tokens)


def test_the_window_counts_by_its_mean_or_its_busiest_part() -> None:
    counts = [0]
    for at in range(60):  # a minute of 10 a second, then 4 minutes of 2
        counts.append(counts[-1] + (50 if at < 12 else 10))
    seen = service("l4")
    memory = ServiceMemory(since=0.0, last_request_at=0.0)
    for at, count in enumerate(counts):
        memory = remember(seen, (figures(count, 5 * at),), memory, 5.0 * at)
        demand = estimate(memory, 5.0 * at)
        if demand is not None:
            memory = note_part(memory, demand, 1.0, 300.0, 5.0 * at)
    assert demand is not None
    rates = sustained(memory, demand, PROMPT_BOUNDS)
    assert 7.0 < rates[1] < 9.0  # the mean is 3.6, and the busiest minute had 10
    for at in range(61, 80):
        counts.append(counts[-1] + 10)
        memory = remember(seen, (figures(counts[-1], 5 * at),), memory, 5.0 * at)
        memory = note_part(memory, demand, 1.0, 300.0, 5.0 * at)
    now = estimate(memory, 395.0)
    assert now is not None
    assert sustained(memory, now, PROMPT_BOUNDS)[1] == pytest.approx(2.0, rel=0.1)


def test_a_window_that_began_slowly_counts_by_its_later_half() -> None:
    counts = [0]
    for at in range(60):  # minutes of 4, 4, 10, 10 and 6 a second
        counts.append(counts[-1] + 5 * (4, 4, 10, 10, 6)[at // 12])
    seen = service("l4")
    memory = ServiceMemory(since=0.0, last_request_at=0.0)
    for at, count in enumerate(counts):
        memory = remember(seen, (figures(count, 5 * at),), memory, 5.0 * at)
        demand = estimate(memory, 5.0 * at)
        if demand is not None:
            memory = note_part(memory, demand, 1.0, 300.0, 5.0 * at)
    assert demand is not None
    # the mean is 6.8, 0.8 of the busiest minute 8, and the later three have 8.7
    assert 8.2 < sustained(memory, demand, PROMPT_BOUNDS)[1] < 8.7
