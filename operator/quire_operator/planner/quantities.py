"""Quantities as Kubernetes writes them: 8, 500m, 16Gi.

The client's library reads them, too, but the planner does without it, for `quire up` runs it where
there is no cluster.
"""

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,4})|([numkMGTPE]|[KMGTPE]i)?)"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = "KMGTPE"


def amount_of(quantity: object) -> Decimal | None:
    """The amount that a quantity is of; None: it is none."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        return None
    number, exponent, unit = found.groups()
    if unit and unit.endswith("i"):
        return Decimal(number) * Decimal(1024) ** (_BINARY.index(unit[0]) + 1)
    return Decimal(number).scaleb(int(exponent) if exponent else _DECIMAL.get(unit or "", 0))
