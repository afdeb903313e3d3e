"""The cheapest replicas for some load."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_operator.scaling.grouping import group_alike
from quire_operator.scaling.loads import Load, Loads
from quire_operator.scaling.mix import Bounds, Option, Room, choose
from quire_operator.scaling.spreading import carry


def option(name: str, cost: float, *loads: float | None, **bounds: int) -> Option:
    """One that has no use for more of it than it needs."""
    made = Loads.of([None if one is None else Load(memory=one, time=one) for one in loads])
    known = {"highest": 10, "current": 10} | bounds
    return Option(name=name, cost=cost, loads=made, **known)


def test_what_is_cheapest_for_the_load_is_chosen() -> None:
    small, large = option("small", 1.0, 0.5), option("large", 3.0, 0.1)
    assert choose([small, large], [2.0], Bounds()).replicas == {"small": 1, "large": 0}
    assert choose([small, large], [10.0], Bounds()).replicas == {"small": 0, "large": 1}
    assert choose([small, large], [12.0], Bounds()).replicas == {"small": 1, "large": 1}


def test_buckets_go_to_accelerators_that_can_serve_them() -> None:
    small, large = option("small", 1.0, 0.5, None), option("large", 5.0, 0.25, 0.5)
    found = choose([small, large], [4.0, 1.0], Bounds())
    assert found.is_feasible
    assert found.shares["small"][1] == 0.0
    assert found.shares["large"][1] == 1.0
    assert found.replicas == {"small": 1, "large": 1}


def test_bounds_are_kept_and_what_is_left_is_said() -> None:
    found = choose([option("l4", 1.0, 1.0)], [10.0], Bounds(most=4))
    assert found.replicas == {"l4": 4}
    assert found.unserved == pytest.approx(0.6, abs=0.01)
    assert choose([option("l4", 1.0, 1.0)], [10.0], Bounds(most_cost=3.5)).replicas == {"l4": 3}
    room = Room(gpus={"l4": 2}, most=5)
    assert choose([option("l4", 1.0, 1.0)], [10.0], Bounds(rooms=(room,))).replicas == {"l4": 2}


def test_what_cannot_be_served_costs_nothing_more() -> None:
    found = choose([option("l4", 1.0, 0.5), option("h100", 9.0, 0.5)], [30.0], Bounds(most=3))
    assert found.replicas == {"l4": 3, "h100": 0}


def test_a_change_must_be_worth_it() -> None:
    old = option("old", 1.0, 1.0, current=2)
    better = option("better", 0.95, 1.0, current=0)
    much_better = option("better", 0.5, 1.0, current=0)
    assert choose([old, better], [2.0], Bounds()).replicas["old"] == 2
    assert choose([old, much_better], [2.0], Bounds()).replicas["better"] == 2


def test_replicas_that_fail_carry_nothing() -> None:
    found = choose([option("l4", 1.0, 1.0, num_idle=2, lowest=2)], [3.0], Bounds())
    assert found.replicas == {"l4": 5}


def test_given_replicas_are_loaded_evenly() -> None:
    options = [option("small", 1.0, 0.5), option("large", 3.0, 0.1)]
    carried = carry(options, {"small": 1, "large": 1}, [12.0])
    assert carried.load == pytest.approx(1.0)
    assert carried.shares["large"][0] == pytest.approx(10 / 12)
    assert carry([option("small", 1.0, None)], {"small": 1}, [1.0]).load == float("inf")


@settings(max_examples=60)
@given(
    loads=st.lists(st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)), min_size=3, max_size=3),
    rates=st.tuples(st.floats(0.1, 2.0), st.floats(0.1, 2.0)),
)
def test_no_other_replicas_are_cheaper(
    loads: list[tuple[float, float]], rates: tuple[float, float]
) -> None:
    costs = (1.0, 1.7, 4.1)
    options = [
        option(name, cost, *load, highest=4)
        for name, cost, load in zip("abc", costs, loads, strict=True)
    ]
    found = choose(options, rates, Bounds(most=12))
    best = min(
        (
            sum(cost * count for cost, count in zip(costs, counts, strict=True))
            for counts in product(range(5), repeat=3)
            if any(counts)
            and carry(options, dict(zip("abc", counts, strict=True)), rates).load <= 1.0 + 1e-6
        ),
        default=None,
    )
    if best is None:
        assert not found.is_feasible
    else:
        assert found.is_feasible
        assert found.cost <= 1.006 * best + 1e-6


def test_the_same_question_has_the_same_answer() -> None:
    options = [option(str(at), 1.0 + 0.1 * at, 0.5, 0.3 + 0.05 * at) for at in range(6)]
    answers = [choose(options, [3.0, 4.0], Bounds()) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


def test_buckets_that_an_accelerator_cannot_serve_are_never_put_with_those_that_it_can() -> None:
    # so far apart in what they take that only the widest steps make few groups of them
    cheap = Loads.of([Load(0.1, 10.0 ** (at % 5)) for at in range(20)] + [None] * 5)
    dear = Loads.of([Load(0.1, 10.0 ** (at // 5)) for at in range(25)])
    groups = group_alike([cheap, dear], [1.0, 2.0], [1.0] * 25)
    members = [set(one.members) for one in groups]
    assert sorted(index for one in members for index in one) == list(range(25))
    long_ones = set(range(20, 25))
    assert all(one <= long_ones or not one & long_ones for one in members)
    options = [
        Option(name="cheap", cost=1.0, loads=cheap, current=1),
        Option(name="dear", cost=2.0, loads=dear, highest=10**6),
    ]
    mix = choose(options, [0.0] * 20 + [1.0] * 5, Bounds(most=10**6))
    assert mix.is_feasible
    assert mix.replicas["dear"] > 0
