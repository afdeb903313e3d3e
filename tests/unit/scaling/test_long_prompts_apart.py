"""Long prompts that are kept apart on fast accelerators."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.capacity import Capacity, capacity
from quire_operator.scaling.clamping import Limit, Limits, consistent
from quire_operator.scaling.fleet import see_fleet
from quire_operator.scaling.inputs import Capability, ServiceLevel
from quire_operator.scaling.keeping import choose_shares
from quire_operator.scaling.loads import Load, Loads, keep_apart
from quire_operator.scaling.mix import Bounds, Option, choose
from quire_operator.scaling.offers import make_offers
from quire_operator.scaling.sizing import Sizing
from quire_operator.scaling.spreading import Carried, carry
from quire_operator.scaling.ways import choose_of
from tests.unit.scaling.worlds import capability, service

CHAT = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.06)
MIX = (
    Bucket(prompt_tokens=300, output_tokens=200, prefill_tokens=300, rate=18.0),
    Bucket(prompt_tokens=3000, output_tokens=200, prefill_tokens=3000, rate=4.0),
)
"""Long prompts take a T4 more than half of the promised time, and less than all of it."""


def loads(*parts: float | None) -> Loads:
    """By bucket, of memory and time alike."""
    return Loads.of([None if one is None else Load(memory=one, time=one) for one in parts])


def of_gpu(gpu: str) -> Capacity:
    """What a GPU does of the mix."""
    known: Capability = capability(gpu)
    found = capacity(known, None, MIX, CHAT, 0.75)
    assert isinstance(found, Capacity)
    return found


def sizing(
    mix: tuple[Bucket, ...] = MIX, most: Mapping[str, int] | None = None, **ordered: int
) -> Sizing:
    """Of a service with such replicas; `most` of each is 30 where nothing is said."""
    highest = dict.fromkeys(ordered, 30) | dict(most or {})
    made = service(*ordered, ordered=ordered)
    offers = make_offers(made, {}, mix)
    limits: Limits = consistent(
        [
            Limit(name=name, cost=offers.costs[name], lowest=0, highest=num, is_doubtful=False)
            for name, num in highest.items()
        ],
        fewest=1,
        most=30,
        most_cost=None,
        rooms=(),
    )
    return Sizing(service=made, offers=offers, fleet=see_fleet(made, {}), limits=limits)


def test_a_slow_gpu_that_is_spared_long_prompts_does_more_of_the_short_ones() -> None:
    slow, fast = of_gpu("t4"), of_gpu("h100")
    assert slow.loads.are_served.tolist() == [True, True]
    assert slow.quick_loads.are_served.tolist() == [True, False]
    assert slow.quick_loads.time[0] < 0.9 * slow.loads.time[0]
    assert fast.quick_loads is fast.loads


def test_what_is_long_for_all_goes_to_the_fastest_which_is_spared_nothing() -> None:
    slow, fast = loads(1.0, 2.0, 4.0), loads(0.5, 1.0, 2.0)
    slow_quick, fast_quick = loads(0.6, None, None), loads(0.4, 0.8, None)
    assert keep_apart([slow, fast], [slow_quick, fast_quick]) == [[slow_quick, fast]]
    assert keep_apart([slow], [slow_quick]) == []
    assert keep_apart([slow, fast], [slow, fast]) == []
    assert keep_apart([], []) == []


def test_the_cheaper_way_is_chosen_and_what_serves_more_before_it() -> None:
    def option(name: str, cost: float, own: Loads) -> Option:
        return Option(name=name, cost=cost, loads=own, highest=30, current=30)

    sharing = [option("slow", 1.0, loads(1.0, 2.0)), option("fast", 6.0, loads(0.1, 0.3))]
    apart = [option("slow", 1.0, loads(0.5, None)), option("fast", 6.0, loads(0.1, 0.3))]
    bounds, rates = Bounds(most=30), [10.0, 3.0]
    assert choose(sharing, rates, bounds).cost > 11.0
    found = choose_of([sharing, apart], rates, bounds)
    assert found.replicas == {"slow": 5, "fast": 1}
    assert found.shares["slow"] == pytest.approx((found.shares["slow"][0], 0.0))
    few = Bounds(most=4)
    unserved = choose_of([apart, sharing], rates, few).unserved
    assert unserved == min(choose(one, rates, few).unserved for one in (sharing, apart))
    assert choose_of([sharing], rates, bounds) == choose(sharing, rates, bounds)


def test_replicas_carry_their_load_in_the_way_that_is_lighter() -> None:
    both, counts = sizing(t4=4, h100=1), {"t4": 4, "h100": 1}
    rates = [one.rate for one in MIX]
    shared = carry(both.options, counts, rates)
    carried = both.spread(counts, rates)
    assert carried.load < 0.99 * shared.load
    assert carried.shares["t4"][1] == 0.0
    assert carried.load == both.load(counts, rates)
    assert both.spread(counts, rates, low_enough=shared.load) == shared
    # alone it takes everything
    alone = {"t4": 4, "h100": 0}
    assert both.load(alone, rates) == sizing(t4=4).load({"t4": 4}, rates) < np.inf


def test_what_never_comes_takes_no_long_prompts_from_others() -> None:
    longer = (*MIX, Bucket(prompt_tokens=6000, output_tokens=200, prefill_tokens=6000, rate=1.0))
    two = sizing(longer, t4=6, l4=3)
    three = sizing(longer, most={"h100": 0}, t4=6, l4=3, h100=0)
    rates = [one.rate for one in longer]
    counts = {"t4": 6, "l4": 3}
    assert three.load(counts, rates) == two.load(counts, rates)
    assert three.afresh(rates).cost == two.afresh(rates).cost


def test_a_dear_gpu_that_may_come_hides_no_saving_among_others() -> None:
    longer = tuple(
        Bucket(prompt_tokens=tokens, output_tokens=200, prefill_tokens=tokens, rate=rate)
        for tokens, rate in ((600, 7.5), (4500, 2.2), (6500, 0.05))
    )
    two, three = sizing(longer, t4=0, l4=0), sizing(longer, t4=0, l4=0, h100=0)
    by_name = {one.accelerator.name: one.quick_loads for one in three.offers.offers}
    assert [by_name[name].are_served.sum() for name in ("t4", "l4", "h100")] == [1, 2, 3]
    rates = [one.rate for one in longer]
    shared = choose([replace(one, highest=30) for one in two.options], rates, two.limits.bounds)
    assert two.afresh(rates).cost < 0.95 * shared.cost
    assert three.afresh(rates).cost == two.afresh(rates).cost
    assert three.least_cost(rates) <= two.least_cost(rates)


def test_slower_ones_are_spared_more_and_more() -> None:
    slow, middle, fast = loads(4.0, 4.0, 4.0), loads(2.0, 2.0, 2.0), loads(1.0, 1.0, 1.0)
    quick = [loads(3.0, None, None), loads(1.5, 1.5, None), fast]
    assert keep_apart([slow, middle, fast], quick) == [
        [quick[0], middle, fast],
        [quick[0], quick[1], fast],
    ]


def test_what_has_to_be_anyway_hides_no_saving_of_one_replica() -> None:
    slow, fast = loads(0.9, 3.0), loads(0.5, 1.0)
    sharing = [
        Option(name="slow", cost=1.0, loads=slow, lowest=1),
        Option(name="fast", cost=5.0, loads=fast, lowest=1),
    ]
    apart = [replace(sharing[0], loads=loads(0.4, None)), sharing[1]]
    rates, bounds = [1.2, 1.0], Bounds(most=10)
    assert choose(sharing, rates, bounds).replicas == {"slow": 2, "fast": 1}
    assert choose_of([sharing, apart], rates, bounds).replicas == {"slow": 1, "fast": 1}


def test_nothing_is_too_much_where_fewer_may_not_be() -> None:
    three = sizing(l4=3)
    rates = [0.1 for _ in MIX]
    assert three.has_surplus(rates)
    bounds = replace(three.limits.bounds, fewest=3)
    assert not replace(three, limits=replace(three.limits, bounds=bounds)).has_surplus(rates)


def test_what_takes_several_more_of_each_is_surely_carried() -> None:
    few, rates = sizing(t4=4, l4=2), [1.5 * one.rate for one in MIX]
    assert few.load({"t4": 5, "l4": 3}, rates) > 1.0
    assert few.may_surely_carry(rates)
    assert not sizing(most={"t4": 5, "l4": 3}, t4=4, l4=2).may_surely_carry(rates)


def test_where_none_may_be_none_surely_carries_anything() -> None:
    none = sizing(most={"t4": 0, "l4": 0}, t4=0, l4=0)
    assert not none.may_surely_carry([one.rate for one in MIX])


SHARING, APART = {"t4": 0.37, "l4": 0.63}, {"t4": 0.5, "l4": 0.5}


@pytest.mark.parametrize(
    ("sharing", "apart", "told", "expected"),
    [
        (0.96, 0.97, {}, SHARING),
        (0.97, 0.96, SHARING, SHARING),
        (0.97, 0.96, APART, APART),
        (1.2, 0.96, SHARING, APART),
        (1.2, 0.96, {"t4": 0.48, "l4": 0.52}, {"t4": 0.48, "l4": 0.52}),
        (math.inf, math.inf, SHARING, {}),
    ],
)
def test_ways_that_are_as_light_take_no_turns(
    sharing: float, apart: float, told: Mapping[str, float], expected: Mapping[str, float]
) -> None:
    ways = [Carried(sharing, {}), Carried(apart, {})]
    parts = dict(zip(ways, (SHARING, APART), strict=True))
    found = choose_shares(ways, told, lambda way: parts[way] if way.load < math.inf else {})
    assert found == expected


def test_no_gpu_is_spared_what_a_slower_one_would_take() -> None:
    long = tuple(
        Bucket(prompt_tokens=one, output_tokens=200, prefill_tokens=one, rate=2.0)
        for one in (2800, 4500)
    )
    slow, faster = sizing(long, t4=3), sizing(long, a10g=3)
    assert [one.quick_loads.are_served.tolist() for one in slow.offers.offers] == [[False, False]]
    assert [one.quick_loads.are_served.tolist() for one in faster.offers.offers] == [[True, False]]
    both, rates = sizing(long, t4=3, a10g=3), [one.rate for one in long]
    counts = {"t4": 3, "a10g": 3}
    assert both.spread(counts, rates) == carry(both.options, counts, rates)
    assert (
        keep_apart([loads(2.0, 3.0), loads(1.0, 1.0)], [loads(None, None), loads(0.5, None)]) == []
    )
