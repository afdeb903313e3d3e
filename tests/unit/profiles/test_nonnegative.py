from hypothesis import given
from hypothesis import strategies as st

from quire_engine.profiles.nonnegative import solve_nonnegative

numbers = st.integers(-20, 20).map(float)
rows = st.integers(1, 7).flatmap(
    lambda size: st.lists(
        st.tuples(st.lists(numbers, min_size=size, max_size=size), numbers),
        min_size=1,
        max_size=12,
    )
)


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def normal_equations(
    equations: list[tuple[list[float], float]],
) -> tuple[list[list[float]], list[float]]:
    columns = [list(column) for column in zip(*(row for row, _ in equations), strict=True)]
    targets = [target for _, target in equations]
    gram = [[dot(one, other) for other in columns] for one in columns]
    return gram, [dot(column, targets) for column in columns]


def test_the_unconstrained_answer_is_found_where_it_is_allowed() -> None:
    gram, moments = normal_equations([([1, 1], 3), ([1, 2], 5), ([1, 3], 7)])
    first, second = solve_nonnegative(gram, moments)
    assert abs(first - 1) < 1e-4
    assert abs(second - 2) < 1e-4


def test_what_would_be_negative_is_0_and_the_rest_fits_without_it() -> None:
    gram, moments = normal_equations([([1, 1], 4), ([1, 2], 3), ([1, 3], 2)])
    first, second = solve_nonnegative(gram, moments)
    assert second == 0
    assert abs(first - 3) < 1e-4


def test_an_unknown_without_evidence_is_0() -> None:
    assert solve_nonnegative([[0, 0], [0, 4]], [0, 8])[0] == 0


@given(equations=rows, guess=st.lists(st.booleans(), min_size=7, max_size=7))
def test_no_small_change_makes_it_better(
    equations: list[tuple[list[float], float]], guess: list[bool]
) -> None:
    gram, moments = normal_equations(equations)
    solution = solve_nonnegative(gram, moments, guess[: len(moments)])
    scale = max(1.0, *(abs(moment) for moment in moments))
    for row, moment, value in zip(gram, moments, solution, strict=True):
        slope = dot(row, solution) - moment
        assert value >= 0
        assert slope > -0.01 * scale
        assert value == 0 or slope < 0.01 * scale
