"""Numbers on the command line, with errors that say what is accepted."""

import argparse
from collections.abc import Callable

_MOST_GATEWAYS = 1000


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number of at least 1')
    return int(text)


def gateway_count(text: str) -> int:
    """A whole number from 1 to 1,000: each gateway costs time, traffic or not."""
    found = count(text)
    if found > _MOST_GATEWAYS:
        raise argparse.ArgumentTypeError(f"{found:,} gateways are more than {_MOST_GATEWAYS:,}")
    return found


def number_from(low: float, high: float) -> Callable[[str], float]:
    """Take a number in this range, both ends included."""

    def take(text: str) -> float:
        value = _number(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f'"{text}" is no number from {low:g} to {high:g}')
        return value

    return take


temperature = number_from(0, 2)


def limit(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number of at least 0')
    return int(text)


def share(text: str) -> float:
    """A number above 0, up to 1."""
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f'"{text}" is no number above 0 and up to 1')
    return value


def _number(text: str) -> float:
    """What the text says, or a number that is in no range."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
