"""Where requests go."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_gateway.choosing.choose import MANY, Rooms, choose, choose_roomiest
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.retry import jitter, predict_wait
from tests.unit.gateway.builders import SLOW, THRESHOLDS, demand, endpoint, state


def test_a_faster_engine_is_preferred_until_its_queue_is_longer() -> None:
    fast, slow = endpoint(0), endpoint(1, state(step_time=SLOW))
    wanted = demand()
    assert choose([slow, fast], wanted, {}, now=0.0, chance=lambda: 0.5) is fast
    fast.send(1, 10.0, 200_000.0, 0.0)
    assert choose([slow, fast], wanted, {}, now=0.0, chance=lambda: 0.5) is slow


def test_a_fast_engine_gets_no_queue_for_the_sake_of_its_pace() -> None:
    fast, slow = endpoint(0), endpoint(1, state(held=10, running=1, step_time=SLOW))
    long_answer = demand(max_tokens=1000)
    assert choose([slow, fast], long_answer, {}, now=0.0, chance=lambda: 0.5) is fast
    fast.send(
        1, 10.0, 20_000.0, 0.0
    )  # half a second of prompts; answers take ten times as long there
    assert choose([slow, fast], long_answer, {}, now=0.0, chance=lambda: 0.5) is slow


def test_cached_prefixes_are_worth_the_seconds_they_save() -> None:
    engines = [endpoint(n, state(held=10, running=1)) for n in range(3)]
    long = demand(num_prompt_tokens=4000, max_tokens=1, chunks=tuple(range(10)))
    assert choose(engines, long, {1: 9}, now=0.0, chance=lambda: 0.9) is engines[1]
    engines[1].send(1, 1.0, 20_000.0, 0.0)  # what it has cached saves less than its queue takes
    assert choose(engines, long, {1: 9}, now=0.0, chance=lambda: 0.9) is not engines[1]


def test_what_another_engine_has_cached_is_copied_only_for_more_than_its_own_time() -> None:
    engines = [endpoint(n, state(held=10, running=1)) for n in range(2)]
    prompt = demand(num_prompt_tokens=4000, max_tokens=1, chunks=tuple(range(10)))
    for queued, chosen in ((4000.0, 1), (16_000.0, 0)):
        engines[1].send(int(queued), 1.0, queued, 0.0)
        assert choose(engines, prompt, {1: 9}, now=0.0, chance=lambda: 0.9) is engines[chosen]


def test_an_engine_without_room_is_not_chosen_though_it_is_faster() -> None:
    full = endpoint(0, state(held=945, running=10))
    slow = endpoint(1, state(held=10, running=1, step_time=SLOW))
    assert choose([full, slow], demand(), {}, now=0.0, chance=lambda: 0.0) is slow
    assert choose([full], demand(), {}, now=0.0, chance=lambda: 0.0) is None
    seats = endpoint(0, state(held=64, running=64))
    assert choose([seats], demand(), {}, now=0.0, chance=lambda: 0.0) is None


def test_a_prompt_that_is_held_anyhow_takes_room_for_the_rest_alone() -> None:
    engine = endpoint(0, state(held=600, running=10))
    prompt = demand(num_prompt_tokens=6400, chunks=tuple(range(10)))
    assert choose([engine], prompt, {0: 9}, now=0.0, chance=lambda: 0.0) is None
    engine.send(1, 0.0, 0.0, 0.0, chunks=prompt.chunks[:9])  # it has no block there yet
    assert choose([engine], prompt, {0: 9}, now=0.0, chance=lambda: 0.0) is None
    engine.hear(state(held=600, running=10, counter=1), 0.0)
    assert choose([engine], prompt, {0: 9}, now=0.0, chance=lambda: 0.0) is engine
    others = demand(num_prompt_tokens=6400, chunks=(0, *range(11, 20)))
    assert choose([engine], others, {0: 9}, now=0.0, chance=lambda: 0.0) is None
    engine.end(1)  # cached, and in no one's use: that saves no room
    assert choose([engine], prompt, {0: 9}, now=0.0, chance=lambda: 0.0) is None


@pytest.mark.parametrize(("held", "is_copied"), [(500, True), (700, False)])
def test_who_may_wait_gets_no_copy_of_a_prompt_where_little_is_spare(
    held: int, *, is_copied: bool
) -> None:
    home, other = endpoint(0, state(held=945, running=10)), endpoint(1, state(held=held, running=9))
    prompt = demand(num_prompt_tokens=2500, chunks=tuple(range(10)))
    engines = [home, other]
    chosen = choose(engines, prompt, {0: 9}, now=0.0, chance=lambda: 0.0, is_patient=True)
    assert chosen is (other if is_copied else None)
    assert choose(engines, prompt, {0: 9}, now=0.0, chance=lambda: 0.0) is other

    home.is_leaving = True  # it is not waited for
    assert choose(engines, prompt, {0: 9}, now=0.0, chance=lambda: 0.0, is_patient=True) is other


@given(
    held=st.lists(st.integers(0, 950), min_size=1, max_size=4),
    running=st.integers(0, 64),
    refused=st.integers(1, 1000),
    num_tokens=st.integers(1, 16_000),
    hits=st.integers(0, 10),
    is_shared=st.booleans(),
)
def test_where_there_is_no_room_none_is_chosen(
    held: list[int], running: int, refused: int, num_tokens: int, hits: int, *, is_shared: bool
) -> None:
    engines = [endpoint(n, state(held=one, running=running)) for n, one in enumerate(held)]
    engines[0].refuse(refused)
    if is_shared:
        engines[-1].send(1, 0.0, 0.0, 0.0, chunks=(0, 1, 2))
        engines[-1].hear(state(held=held[-1], running=running, counter=1), 0.0)
    prompt = demand(num_prompt_tokens=num_tokens, chunks=tuple(range(10)))
    found = {engines[-1].slot: hits} if hits else {}
    chosen = choose(engines, prompt, found, now=0.0, chance=lambda: 0.0)
    assert Rooms(engines, 0.0, 3.0).may_fit(prompt, found) or chosen is None


def test_background_requests_have_a_lower_ceiling() -> None:
    engine = endpoint(0, state(held=810, running=10))
    assert choose([engine], demand(), {}, now=0.0, chance=lambda: 0.0) is engine
    background = demand(is_background=True)
    assert choose([engine], background, {}, now=0.0, chance=lambda: 0.0) is None


def test_an_empty_engine_takes_what_no_ceiling_allows() -> None:
    huge = demand(num_prompt_tokens=16_000, max_tokens=4000, deadline_seconds=0.0)
    assert choose([endpoint()], huge, {}, now=0.0, chance=lambda: 0.0) is not None


def test_a_first_token_that_would_be_late_waits_or_goes_elsewhere() -> None:
    busy = endpoint(0, state(held=10, running=1))
    busy.send(1, 1.0, 100_000.0, 0.0)
    soon = demand(deadline_seconds=0.5)
    assert choose([busy], soon, {}, now=0.0, chance=lambda: 0.0) is None
    assert choose([busy], demand(deadline_seconds=500.0), {}, now=0.0, chance=lambda: 0.0)


def test_an_engine_too_slow_for_the_objective_gets_no_second_request() -> None:
    goal = type(THRESHOLDS)(
        admission=0.95,
        background=0.8,
        max_queue_seconds=30.0,
        max_waiting_requests=100,
        slo_time_per_output_token_seconds=0.04,
    )
    slow = endpoint(0, state(step_time=SLOW, thresholds=goal, held=10, running=1))
    assert choose([slow], demand(), {}, now=0.0, chance=lambda: 0.0) is None
    background = demand(is_background=True)
    assert choose([slow], background, {}, now=0.0, chance=lambda: 0.0) is slow


def spread(engines: list[Endpoint], num_requests: int) -> list[Endpoint]:
    random = Random(7)
    chosen = []
    for number in range(num_requests):
        one = choose(engines, demand(), {}, now=0.0, chance=random.random)
        assert one is not None
        one.send(number, 8.0, 100.0, 0.0)
        chosen.append(one)
    return chosen


def test_a_burst_between_two_states_spreads_over_equal_engines() -> None:
    counts = Counter(spread([endpoint(n) for n in range(4)], 100))
    assert max(counts.values()) - min(counts.values()) <= 6


def test_equal_prefixes_meet_before_any_engine_has_told_of_them_and_make_no_hot_spot() -> None:
    engines = [endpoint(n, state(held=20, running=2)) for n in range(4)]
    few = demand(chunks=(1234, 5))
    first = choose(engines, few, {}, now=0.0, chance=lambda: 0.1)
    assert choose(engines, few, {}, now=0.0, chance=lambda: 0.9) is first
    homes = {
        choose(engines, demand(chunks=(n,)), {}, now=0.0, chance=lambda: 0.1) for n in range(40)
    }
    assert len(homes) == 4
    counts: Counter[Endpoint] = Counter()
    for number in range(40):
        one = choose(engines, few, {}, now=0.0, chance=lambda: 0.1)
        assert one is not None
        one.send(number, 1.0, 0.0, 0.0)
        counts[one] += 1
    assert max(counts.values()) <= 1.25 * (40 + 8) / 4 + 1


def test_a_new_engine_is_not_stormed() -> None:
    old = [endpoint(n, state(held=8, running=1)) for n in range(3)]
    new = endpoint(3)
    new.ready_since = 0.0
    assert choose([*old, new], demand(), {}, now=0.0, chance=lambda: 0.99) is not new
    for one in old:
        one.beat(11.0)
    new.beat(11.0)
    assert choose([new], demand(), {}, now=11.0, chance=lambda: 0.0) is new


def test_of_many_engines_those_with_the_prefix_are_always_looked_at() -> None:
    engines = [endpoint(n, state(held=10, running=1)) for n in range(3 * MANY)]
    long = demand(num_prompt_tokens=8000, chunks=tuple(range(10)))
    random = Random(1)
    for _ in range(20):
        assert choose(engines, long, {70: 10}, now=0.0, chance=random.random) is engines[70]


@given(
    held=st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    tokens=st.integers(1, 8000),
    seed=st.integers(0, 99),
)
def test_what_is_chosen_has_room(held: list[int], tokens: int, seed: int) -> None:
    engines = [endpoint(n, state(held=h, running=min(h, 9))) for n, h in enumerate(held)]
    wanted = demand(num_prompt_tokens=tokens)
    chosen = choose(engines, wanted, {}, now=0.0, chance=Random(seed).random)
    fits = [h for h in held if h == 0 or h + wanted.blocks(16) <= 950]
    assert (chosen is not None) == bool(fits)
    if chosen is not None:
        assert held[engines.index(chosen)] in fits


def test_a_big_one_that_waited_long_goes_where_most_is_free_and_never_where_it_cannot_fit() -> None:
    small = endpoint(0, state(total=100))
    full, fuller = endpoint(1, state(held=900, running=9)), endpoint(2, state(held=940, running=9))
    big = demand(num_prompt_tokens=8000)
    assert choose_roomiest([small, fuller, full], big, now=0.0) is full
    assert choose_roomiest([small], big, now=0.0) is None


def test_the_time_to_try_again_grows_with_the_queue_and_is_bounded() -> None:
    engines = [endpoint(0, state(held=945, running=60))]
    waits = [predict_wait(engines, demand(), blocks) for blocks in (10.0, 500.0, 5000.0)]
    assert waits == sorted(waits)
    assert waits[0] < waits[2]
    assert predict_wait([], demand(), 0.0) == 60.0
    assert jitter(0.001, lambda: 0.0) == 1.0
    assert jitter(10.0, lambda: 0.5) == pytest.approx(11.0)
    assert jitter(1e9, lambda: 0.9) == 60.0
