"""Quantities are read as Kubernetes' own library reads them."""

import pytest
from kubernetes.utils.quantity import parse_quantity

from quire_operator.planner.quantities import amount_of


@pytest.mark.parametrize(
    "quantity", [2, "0", "500m", "16Gi", "1.5G", "1e3", "5E-2", ".5", "7u", "12E", "1Ei", "1e400"]
)
def test_amounts_are_the_librarys(quantity: int | str) -> None:
    assert amount_of(quantity) == parse_quantity(quantity)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("quantity", ["many", "", "2i", "Gi", "-1", "1e99999", None])
def test_what_is_no_amount_is_none(quantity: object) -> None:
    assert amount_of(quantity) is None
