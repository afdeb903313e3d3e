"""Numbers within bounds, as GBNF: what is below or above cannot be written.

A range of whole numbers is a union of patterns of digits: 95 to 123 is 9[5-9] | 1[0-1][0-9] |
12[0-3]. A fraction is bounded at the first and the last whole part alone, and has few digits, so
that no rounding to a double passes an exclusive bound.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from quire_engine.grammar.refusal import SchemaError

MAX_DIGITS = 16
_FRACTION_DIGITS = 6
_LARGEST_WITH_FRACTION = 10**9
_LARGEST = 2**53


def write_integers(low: int | None, high: int | None) -> list[str]:
    """Return patterns of the whole numbers from `low` to `high`, both included; may be empty."""
    largest = 10**MAX_DIGITS - 1
    top = max(largest, 10 * abs(low or 0)) if high is None else high
    bottom = -max(largest, 10 * abs(high or 0)) if low is None else low
    if bottom > top:
        return []
    patterns = []
    if bottom < 0:
        negative = _digits(max(1, -top), -bottom)
        patterns += [f'"-" {pattern}' for pattern in negative]
    if top >= 0:
        patterns += _digits(max(bottom, 0), top)
    return patterns


def write_numbers(
    low: Decimal | None, high: Decimal | None, *, above: bool, below: bool
) -> list[str]:
    """Return patterns of numbers between two bounds; may be empty.

    Parameters
    ----------
    above, below
        Whether the lower and the upper bound itself are left out.

    Raises
    ------
    SchemaError
        A bound is too large, or has too many digits.
    """
    low, above = _coarsen(low, above, ROUND_FLOOR, 1)
    high, below = _coarsen(high, below, ROUND_CEILING, -1)
    if low is not None and high is not None and (low > high or (low == high and (above or below))):
        return []
    patterns = []
    if low is None or low < 0:
        nearest, is_open = (Decimal(0), False) if high is None or high >= 0 else (-high, below)
        farthest = None if low is None else -low
        patterns += [f'"-" {p}' for p in _unsigned(nearest, farthest, above=is_open, below=above)]
    if high is None or high >= 0:
        nearest, is_open = (Decimal(0), False) if low is None or low < 0 else (low, above)
        patterns += _unsigned(nearest, high, above=is_open, below=below)
    return patterns


def _coarsen(
    bound: Decimal | None, is_open: bool, rounding: str, step: int
) -> tuple[Decimal | None, bool]:
    """Replace an open bound that is too large for fractions by the next whole number."""
    if bound is None:
        return None, False
    if abs(bound) > _LARGEST:
        raise SchemaError(f"a bound of {bound} is too large: at most {_LARGEST}")
    if abs(bound) <= _LARGEST_WITH_FRACTION:
        return bound, is_open
    whole = bound.to_integral_value(rounding)
    return (whole + step if is_open or whole != bound else whole), False


def _unsigned(low: Decimal, high: Decimal | None, *, above: bool, below: bool) -> list[str]:
    """Return patterns of numbers from `low` on, which is not negative."""
    places = max(_FRACTION_DIGITS, _num_places(low), _num_places(high))
    first = int(low.to_integral_value(ROUND_FLOOR))
    last = None if high is None else int(high.to_integral_value(ROUND_FLOOR))
    least, most = low - first, None if high is None or last is None else high - last
    if first == last:
        return _with_fraction(first, least, most, places, above=above, below=below)
    patterns = _with_fraction(first, least, None, places, above=above, below=False)
    if last is None or last - first > 1:
        between = write_integers(first + 1, None if last is None else last - 1)
        fraction = f'("." [0-9]{{1,{places}}})?'
        patterns += [f"{pattern} {fraction}" for pattern in between]
    if last is not None:
        patterns += _with_fraction(last, Decimal(0), most, places, above=False, below=below)
    return patterns


def _with_fraction(
    whole: int, low: Decimal, high: Decimal | None, places: int, *, above: bool, below: bool
) -> list[str]:
    """Return patterns of one whole part and a fraction from `low` to `high`, or below 1."""
    patterns = []
    if low == 0 and not above and not (high == 0 and below):
        patterns.append(f'"{whole}"')
    for digits in range(1, places + 1):
        scale = 10**digits
        first = int((low * scale).to_integral_value(ROUND_CEILING))
        first += int(above and first == low * scale)
        last = scale - 1
        if high is not None:
            last = int((high * scale).to_integral_value(ROUND_FLOOR))
            last -= int(below and last == high * scale)
        if first <= last:
            between = _same_length(str(first).zfill(digits), str(last).zfill(digits))
            patterns += [f'"{whole}." {pattern}' for pattern in between]
    return patterns


def _num_places(bound: Decimal | None) -> int:
    if bound is None:
        return 0
    exponent = bound.normalize().as_tuple().exponent
    places = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    if places > MAX_DIGITS - 4:
        raise SchemaError(f"a bound of {bound} has too many decimal places")
    return places


def _digits(low: int, high: int) -> list[str]:
    """Return patterns of `low` to `high`, which are not negative, without leading zeros."""
    patterns = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        patterns += _same_length(str(low), str(end))
        low = end + 1
    return patterns


def _same_length(low: str, high: str) -> list[str]:
    """Return patterns of the digits from `low` to `high`, which are equally many."""
    if not low:
        return [""]
    rest = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(high):
        return [_any_digits(len(low))]
    if low[0] == high[0]:
        return [_join(f'"{low[0]}"', tail) for tail in _same_length(low[1:], high[1:])]
    patterns = []
    first, last = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        patterns += [_join(f'"{first}"', tail) for tail in _same_length(low[1:], "9" * rest)]
        first += 1
    ends_early = bool(high[1:].replace("9", ""))
    last -= int(ends_early)
    if first <= last:
        patterns.append(_join(f"[{first}-{last}]", _any_digits(rest)))
    if ends_early:
        patterns += [_join(f'"{high[0]}"', tail) for tail in _same_length("0" * rest, high[1:])]
    return patterns


def _any_digits(count: int) -> str:
    return f"[0-9]{{{count}}}" if count > 1 else "[0-9]" * count


def _join(head: str, tail: str) -> str:
    return f"{head} {tail}" if tail else head
