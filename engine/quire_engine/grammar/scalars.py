"""Numbers of a schema."""

import math
from decimal import Decimal
from typing import Any

from quire_engine.grammar import json_text
from quire_engine.grammar.numbers import write_integers, write_numbers
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.rules import Ref, Rules

MAX_DIVISOR = 200
MAX_MULTIPLES = 1000
_Bounds = tuple[Decimal | None, bool, Decimal | None, bool]


def write_integer(rules: Rules, schema: dict[str, Any]) -> Ref:
    """Make the rule of a schema's whole numbers."""
    low, above, high, below = _read_bounds(schema)
    least = None if low is None else math.floor(low) + 1 if above else math.ceil(low)
    most = None if high is None else math.ceil(high) - 1 if below else math.floor(high)
    if "multipleOf" in schema and schema["multipleOf"] != 1:
        return _write_multiples(rules, schema["multipleOf"], least, most)
    if least is None and most is None:
        return json_text.integer(rules)
    return rules.add("integer", *[(pattern,) for pattern in write_integers(least, most)])


def write_number(rules: Rules, schema: dict[str, Any]) -> Ref:
    """Make the rule of a schema's numbers."""
    if "multipleOf" in schema:
        return write_integer(rules, schema)
    low, above, high, below = _read_bounds(schema)
    if low is None and high is None:
        return json_text.number(rules)
    patterns = write_numbers(low, high, above=above, below=below)
    return rules.add("number", *[(pattern,) for pattern in patterns])


def _read_bounds(schema: dict[str, Any]) -> _Bounds:
    """Return the lower bound and whether it is left out, and the upper one."""
    low, above = _tighter(schema.get("minimum"), schema.get("exclusiveMinimum"), 1)
    high, below = _tighter(schema.get("maximum"), schema.get("exclusiveMaximum"), -1)
    return low, above, high, below


def _tighter(closed: float | None, is_open: float | None, sign: int) -> tuple[Decimal | None, bool]:
    if is_open is not None and (closed is None or sign * is_open >= sign * closed):
        return Decimal(str(is_open)), True
    return (None, False) if closed is None else (Decimal(str(closed)), False)


def _write_multiples(rules: Rules, divisor: float, least: int | None, most: int | None) -> Ref:
    if divisor <= 0 or divisor != int(divisor):
        raise SchemaError("multipleOf: only whole numbers from 1 on can be heeded")
    step = int(divisor)
    if least is not None and most is not None:
        first, last = -(-least // step), most // step
        if last - first > MAX_MULTIPLES:
            raise SchemaError(f"multipleOf: more than {MAX_MULTIPLES} multiples are in the bounds")
        return rules.add("multiple", *[(f'"{n * step}"',) for n in range(first, last + 1)])
    if least is not None or most is not None:
        raise SchemaError("multipleOf with one bound alone cannot be heeded: give both")
    if step > MAX_DIVISOR:
        raise SchemaError(f"multipleOf without bounds is heeded up to {MAX_DIVISOR}")
    return _write_remainders(rules, step)


def _write_remainders(rules: Rules, step: int) -> Ref:
    """Make rules that follow the remainder of the digits so far."""
    names = [rules.reserve("remainder") for _ in range(step)]
    for remainder, name in enumerate(names):
        nexts = [(f'"{digit}"', names[(10 * remainder + digit) % step]) for digit in range(10)]
        rules.define(name, [*nexts, ('""',)] if remainder == 0 else nexts)
    firsts = [('"-"?', f'"{digit}"', names[digit % step]) for digit in range(1, 10)]
    return rules.add("multiple", ('"0"',), *firsts)
