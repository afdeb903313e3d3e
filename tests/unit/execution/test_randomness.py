"""Random numbers belong to (seed, position) alone, and look random."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.execution.randomness import draw_uniforms

SEEDS = st.integers(-(2**70), 2**70)
POSITIONS = st.integers(0, 2**40)


@settings(deadline=None)
@given(st.lists(st.tuples(SEEDS, POSITIONS), min_size=1, max_size=20))
def test_a_number_is_the_same_in_any_company(keys: list[tuple[int, int]]) -> None:
    seeds, positions = zip(*keys, strict=True)
    together = draw_uniforms(seeds, positions)
    assert ((together >= 0) & (together < 1)).all()
    for number, seed, position in zip(together, seeds, positions, strict=True):
        assert draw_uniforms([seed], [position])[0] == number


def test_numbers_never_change_between_versions() -> None:
    numbers = draw_uniforms([0, 0, 1, -1], [0, 1, 0, 5])
    expected = [0.6524484863740322, 0.7012121095215252, 0.36818951565166946, 0.15403342580516755]
    assert numbers.tolist() == expected


def test_neighbours_are_independent() -> None:
    count = 50_000
    by_position = draw_uniforms([3] * count, range(count))
    by_seed = draw_uniforms(range(count), [3] * count)
    for numbers in (by_position, by_seed):
        histogram, _ = np.histogram(numbers, bins=100, range=(0, 1))
        chi_squared = ((histogram - count / 100) ** 2 / (count / 100)).sum()
        assert 60 < chi_squared < 150
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02
