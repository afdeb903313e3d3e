"""What is answered by sorting is what the solver would have said."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_operator.scaling.grouping import group_alike
from quire_operator.scaling.loads import Load, Loads
from quire_operator.scaling.mix import MOVE_COST, Bounds, Option, choose
from quire_operator.scaling.parts import least_cost, least_costs_beside
from quire_operator.scaling.spreading import carry
from quire_operator.scaling.without_solver import cost_of_parts, load_of_two

BUCKETS = 5
COSTS = (1.0, 1.7, 4.1)
load = st.builds(Load, st.floats(0.01, 2.0), st.floats(0.01, 2.0))
loads_of_one = st.lists(st.none() | load, min_size=BUCKETS, max_size=BUCKETS)
rates_of_all = st.lists(st.floats(0.1, 2.0), min_size=BUCKETS, max_size=BUCKETS)


def option(name: str, cost: float, loads: Loads) -> Option:
    """One of which there may be as many as it takes."""
    return Option(name=name, cost=cost, loads=loads, highest=10**6)


@settings(max_examples=200)
@given(
    first=loads_of_one,
    second=loads_of_one,
    rates=rates_of_all,
    counts=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_the_load_of_two_is_the_solvers(
    first: list[Load | None],
    second: list[Load | None],
    rates: list[float],
    counts: tuple[int, int],
) -> None:
    two = [option("a", 1.0, Loads.of(first)), option("b", 1.0, Loads.of(second))]
    by_name = dict(zip("abc", (*counts, 1), strict=True))
    carried = carry(two, by_name, rates)
    # beside one that can serve nobody the solver is asked
    asked = carry([*two, option("c", 1.0, Loads.none(BUCKETS))], by_name, rates)
    assert carried.load == pytest.approx(asked.load, rel=1e-6, abs=1e-7)
    if math.isfinite(carried.load):
        assert _busiest(two, by_name, rates, carried.shares) == pytest.approx(carried.load)


def _busiest(
    options: list[Option],
    counts: dict[str, int],
    rates: list[float],
    shares: Mapping[str, tuple[float, ...]],
) -> float:
    """Load of what is the fullest when rates are shared so."""
    return max(
        sum(
            share * rate * load[kind]
            for share, rate, load in zip(shares[one.name], rates, one.loads, strict=True)
            if load is not None
        )
        / counts[one.name]
        for one in options
        for kind in (0, 1)
    )


@settings(max_examples=60)
@given(loads=st.lists(loads_of_one, min_size=3, max_size=3), rates=rates_of_all)
def test_no_many_replicas_cost_less_than_parts_of_them(
    loads: list[list[Load | None]], rates: list[float]
) -> None:
    options = [
        option(name, cost, Loads.of(one))
        for name, cost, one in zip("abc", COSTS, loads, strict=True)
    ]
    many = [10_000 * rate for rate in rates]
    least = least_cost(options, many)
    mix = choose(options, many, Bounds(most=10**6))
    if mix.is_feasible:
        # the price of what comes, and the solver's gap
        assert least <= (1.0 + 1e-6) * mix.cost
        assert mix.cost <= 1.006 * least + sum(COSTS)


@settings(max_examples=60)
@given(
    loads=st.lists(loads_of_one, min_size=3, max_size=3),
    rates=rates_of_all,
    there=st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_nothing_beside_what_has_to_be_costs_less_than_parts_of_it(
    loads: list[list[Load | None]], rates: list[float], there: list[int]
) -> None:
    options = [
        replace(option(name, cost, Loads.of(one)), lowest=num, current=num)
        for name, cost, one, num in zip("abc", COSTS, loads, there, strict=True)
    ]
    many = [10 * rate for rate in rates]
    mix = choose(options, many, Bounds(most=10**6))
    if not mix.is_feasible:
        return
    coming = sum(one.cost * (mix.replicas[one.name] - one.current) for one in options)
    least = least_costs_beside(options, many)
    assert sum(one.cost * one.lowest for one in options) <= least * (1.0 + 1e-6)
    assert least <= 1.001 * (mix.cost + MOVE_COST * coming)  # hardly anything may be left


def test_replicas_that_cost_too_much_have_no_part_in_what_is_possible() -> None:
    small, large = (
        option("a", 1.0, Loads.of([Load(1.0, 1.0)])),
        option("b", 9.0, Loads.of([Load(0.01, 0.01)])),
    )
    assert least_cost([small, large], [3.0]) == pytest.approx(0.27)
    assert least_cost([small, large], [3.0], most=9.0) == pytest.approx(0.27)
    assert least_cost([small, large], [3.0], most=8.0) == pytest.approx(3.0)
    assert least_cost([replace(small, loads=Loads.none(1)), large], [3.0], most=8.0) == math.inf
    # what has to be is there
    assert least_cost([small, replace(large, lowest=1)], [3.0], most=8.0) == pytest.approx(0.27)


def test_where_memory_and_time_both_run_out_of_one_the_solver_is_asked() -> None:
    loads = [
        Loads.of([Load(memory=0.1, time=2.0), Load(memory=1.0, time=0.1)]),
        Loads.of([Load(memory=0.1, time=0.5), Load(memory=2.0, time=1.0)]),
    ]
    groups = group_alike(loads, [1.0, 1.0], [1.0, 1.0])
    assert load_of_two(groups, (1.0, 1.0)) is None
    assert cost_of_parts(groups, [1.0, 1.0]) is None
    options = [option(name, 1.0, one) for name, one in zip("ab", loads, strict=True)]
    carried = carry(options, {"a": 1, "b": 1}, [1.0, 1.0])
    assert carried.load == pytest.approx(
        _busiest(options, {"a": 1, "b": 1}, [1.0, 1.0], carried.shares)
    )
    # the second bucket by the first one, and so much of the other as it has time for then
    assert least_cost(options, [1.0, 1.0]) == pytest.approx(24.9 / 19)
