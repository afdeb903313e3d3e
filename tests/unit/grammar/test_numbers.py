"""Numbers within bounds: a number is written if and only if it is inside."""

import re
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from quire_engine.grammar.numbers import write_integers, write_numbers

_PIECE = re.compile(r'\s*(?:"([^"]*)"|(\[[^\]]*\](?:\{[^}]*\})?|[()?]))\s*')
_whole = st.integers(-12_000, 12_000) | st.integers(-12, 12)
_decimals = st.builds(
    lambda number, places: Decimal(number) / 10**places, st.integers(-3000, 3000), st.integers(0, 3)
)


def matches(patterns: list[str], text: str) -> bool:
    """Whether one of some patterns of GBNF matches."""
    return any(
        re.fullmatch(_PIECE.sub(lambda m: m[2] or re.escape(m[1]), pattern), text)
        for pattern in patterns
    )


@given(_whole, _whole, st.integers(-2, 2) | _whole)
def test_a_whole_number_is_written_if_it_is_inside(low: int, high: int, offset: int) -> None:
    patterns = write_integers(low, high)
    for number in (low + offset, high + offset, offset):
        assert matches(patterns, str(number)) == (low <= number <= high)


@given(_decimals, _decimals, _decimals, st.booleans(), st.booleans())
def test_a_number_is_written_if_it_is_inside(
    low: Decimal, high: Decimal, offset: Decimal, above: bool, below: bool
) -> None:
    patterns = write_numbers(low, high, above=above, below=below)
    for number in (low, high, low + offset / 1000, high - offset / 1000, offset):
        rounded = number.quantize(Decimal("0.000001")).normalize() + 0
        is_inside = (rounded > low or (rounded == low and not above)) and (
            rounded < high or (rounded == high and not below)
        )
        assert matches(patterns, format(rounded, "f")) == is_inside


def test_one_bound_alone_bounds_one_side() -> None:
    assert matches(write_integers(5, None), "123456789")
    assert not matches(write_integers(5, None), "4")
    assert matches(write_integers(None, -5), "-123456789")
    assert not matches(write_numbers(Decimal("0.5"), None, above=True, below=False), "0.5")
