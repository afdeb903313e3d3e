"""What one replica does of some traffic."""

import gc
import weakref
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.capacity import Capacity, Incapable, capacity
from quire_operator.scaling.inputs import ServiceLevel
from quire_operator.scaling.lengths import lengths_of
from quire_operator.scaling.step_times import StepTimes
from tests.unit.scaling.worlds import capability

CHAT = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.06)


def bucket(prompt: float, output: float, rate: float = 1.0) -> Bucket:
    """Requests of which nothing is cached."""
    return Bucket(prompt_tokens=prompt, output_tokens=output, prefill_tokens=prompt, rate=rate)


def served(gpu: str, *mix: Bucket, slo: ServiceLevel = CHAT, target: float = 0.75) -> Capacity:
    """Capacity of a GPU that can serve the mix."""
    found = capacity(capability(gpu), None, mix, slo, target)
    assert isinstance(found, Capacity)
    return found


def test_a_faster_gpu_does_more() -> None:
    mix = bucket(1000, 200)
    rates = [served(gpu, mix).requests_per_second for gpu in ("t4", "l4", "a100-80", "h100")]
    assert rates == sorted(rates)
    assert rates[-1] > 5 * rates[0]


def test_long_outputs_run_out_of_blocks_and_prompts_of_time() -> None:
    talk = served("l4", bucket(200, 6000), slo=ServiceLevel())
    assert talk.binding == "blocks"
    blocks_each = 1.1 * ((200 + 3000) / 16 + 0.5)
    assert talk.concurrency * blocks_each == pytest.approx(0.75 * capability("l4").num_blocks)
    assert served("l4", bucket(3000, 10)).binding in ("step", "first_token")


@pytest.mark.parametrize("lengths", [((300, 100), (4800, 100)), ((1000, 200), (7000, 300))])
def test_a_little_more_of_long_prompts_costs_a_little(
    lengths: tuple[tuple[float, float], ...],
) -> None:
    slow = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.12)
    short, long = lengths
    rates = [
        served("l4", bucket(*short, 1 - percent / 100), bucket(*long, percent / 100), slo=slow)
        for percent in range(5, 95)
    ]
    for before, after in pairwise(one.requests_per_second for one in rates):
        assert 0.9 < after / before <= 1.0


def test_short_requests_run_out_of_seats() -> None:
    few_seats = replace(capability("h100"), max_num_seqs=16)
    found = capacity(few_seats, None, [bucket(16, 400)], ServiceLevel(), 0.5)
    assert isinstance(found, Capacity)
    assert found.binding == "seats"
    assert found.concurrency == 8


@pytest.mark.parametrize("per_token", [0.06, 0.12])
def test_room_to_grow_is_of_requests_where_all_seats_do_hardly_more(per_token: float) -> None:
    mix, slo = bucket(1000, 220), ServiceLevel(first_token_seconds=2.0, per_token_seconds=per_token)
    planned, all_of_it = (served("h100", mix, slo=slo, target=target) for target in (0.75, 1.0))
    assert 0.7 < planned.requests_per_second / all_of_it.requests_per_second < 0.82


def test_what_was_measured_of_a_few_long_requests_makes_no_steps() -> None:
    narrow = replace(capability("h100"), step_time=_narrowed(64, 16_384))
    found = [
        capacity(narrow, None, [bucket(500 * 1.01**step, 300)], CHAT, 0.75) for step in range(200)
    ]
    rates = [one.requests_per_second for one in found if isinstance(one, Capacity)]
    assert len(rates) == len(found)
    for before, after in pairwise(rates):
        assert 0.93 < after / before < 1.02


def test_a_replica_that_only_computes_prompts_is_idle_now_and_then() -> None:
    slow = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.12)
    prompts = [500.0 * 1.05**step for step in range(52)]
    found = [served("l4", bucket(prompt, 1), slo=slow) for prompt in prompts]
    busy = [
        one.requests_per_second * prompt / one.prompt_tokens_per_second
        for one, prompt in zip(found, prompts, strict=True)
    ]
    assert busy[0] > 0.5
    assert 0.1 < busy[-1] < 0.25
    for before, after in pairwise(one.requests_per_second for one in found):
        assert 0.8 < after / before < 1.0


def test_what_is_too_slow_alone_serves_nobody() -> None:
    found = capacity(
        capability("t4"), None, [bucket(100, 100)], ServiceLevel(per_token_seconds=0.01), 0.75
    )
    assert isinstance(found, Incapable)
    assert "the SLO asks for 10 ms" in found.reason


def test_a_prompt_that_takes_too_long_is_not_for_a_small_gpu() -> None:
    short, long = bucket(500, 100), bucket(13_000, 100)
    assert served("t4", short, long).loads[1] is None
    assert served("h100", short, long).loads[1] is not None


def test_what_does_not_fit_is_served_by_nobody() -> None:
    found = capacity(capability("t4"), None, [bucket(200_000, 10)], ServiceLevel(), 0.75)
    assert isinstance(found, Incapable)


def test_loads_add_up_to_the_target_at_capacity() -> None:
    mix = [bucket(300, 50, 2.0), bucket(1500, 300, 1.0)]
    found = served("l4", *mix)
    total = sum(one.rate for one in mix)
    used = [
        sum(
            getattr(load, kind) * one.rate / total * found.requests_per_second
            for one, load in zip(mix, found.loads, strict=True)
            if load is not None
        )
        for kind in ("memory", "time")
    ]
    assert max(used) == pytest.approx(1.0, rel=0.05)


def test_beyond_what_was_measured_nothing_is_assumed() -> None:
    narrow = replace(capability("h100"), step_time=_narrowed(8, 20_000))
    alone = capacity(narrow, None, [bucket(1000, 300)], CHAT, 0.75)
    helped = capacity(narrow, capability("h100"), [bucket(1000, 300)], CHAT, 0.75)
    assert isinstance(alone, Capacity)
    assert isinstance(helped, Capacity)
    assert alone.concurrency <= 8
    assert helped.requests_per_second > alone.requests_per_second


def test_what_is_expected_is_scaled_to_what_was_measured() -> None:
    expected = capability("h100")
    slow = replace(expected, step_time=_narrowed(8, 20_000, times=2.0))
    steps = StepTimes.of(slow, expected)
    assert steps.seconds(64, 64_000) == pytest.approx(2 * expected.step_time.predict(64, 64_000))
    assert steps.seconds(4, 4_000) == pytest.approx(2 * expected.step_time.predict(4, 4_000))


@given(
    target=st.floats(0.1, 0.9),
    prompt=st.integers(10, 3000),
    output=st.integers(1, 2000),
    gpu=st.sampled_from(["l4", "a100-80", "h100"]),
)
def test_a_higher_target_never_lets_one_do_less(
    target: float, prompt: int, output: int, gpu: str
) -> None:
    lower = capacity(capability(gpu), None, [bucket(prompt, output)], CHAT, target)
    higher = capacity(capability(gpu), None, [bucket(prompt, output)], CHAT, target + 0.1)
    if isinstance(lower, Capacity):
        assert isinstance(higher, Capacity)
        assert higher.requests_per_second >= 0.999 * lower.requests_per_second


def _narrowed(num_decodes: int, context_tokens: int, times: float = 1.0) -> StepTimeModel:
    """A model that was measured in a small range only."""
    model = capability("h100").step_time
    return structs.replace(
        model,
        compute_seconds=tuple(times * one for one in model.compute_seconds),
        seconds_per_context_token=times * model.seconds_per_context_token,
        seconds_per_sequence=times * model.seconds_per_sequence,
        seconds_per_pair=times * model.seconds_per_pair,
        floor_seconds=times * model.floor_seconds,
        limits=StepLimits(
            num_decodes=num_decodes, context_tokens=context_tokens, prefill_tokens=8192
        ),
    )


def test_the_same_gpu_at_another_price_is_computed_once() -> None:
    mix, gpu = (bucket(1000, 200), bucket(3000, 100)), capability("l4")
    first = capacity(gpu, gpu, mix, CHAT, 0.75)
    assert capacity(gpu, gpu, mix, CHAT, 0.75) is first
    assert capacity(gpu, gpu, mix, CHAT, 0.5) is not first
    assert capacity(gpu, gpu, (bucket(1000, 200), bucket(3000, 100)), CHAT, 0.75) is not first


def test_sizes_of_blocks_that_engines_make_up_fill_no_memory() -> None:
    mix = (bucket(1000, 200),)
    made = [weakref.ref(lengths_of(mix, size).rates) for size in range(1, 201)]
    gc.collect()
    assert sum(one() is not None for one in made) < 100
