"""Limits of keys, as they pass from one process to another."""

import pytest

from quire_gateway.errors import ApiError
from quire_gateway.routing.access import Access
from quire_gateway.routing.document import ApiKey
from tests.unit.gateway.builders import routing

DIGEST = "0" * 64


def access(num_gateways: int = 1) -> Access:
    """Of one key, with 60 requests and 6,000 tokens a minute."""
    key = {"name": "k", "sha256": DIGEST, "requests_per_minute": 60, "tokens_per_minute": 6000}
    return Access(routing(api_keys=[key], num_gateways=num_gateways), lambda seconds: seconds)


def num_allowed(one: Access, now: float) -> int:
    """How many requests of a token each are let in at this moment."""
    for number in range(100):
        try:
            one.spend(one.with_digest(DIGEST), 1.0, now)
        except ApiError:
            return number
    raise AssertionError("all are let in")


def test_who_takes_over_goes_on_where_the_other_was() -> None:
    first = access()
    assert first.left(100.0) == []
    assert num_allowed(first, 100.0) == 60
    left = first.left(100.0)

    second, worker = access(), access(num_gateways=2)
    for one in (second, worker):
        one.resume(left, 100.0)
        assert num_allowed(one, 100.0) == 0
    assert num_allowed(second, 110.0) == 10
    assert num_allowed(worker, 110.0) == 5


def test_what_others_let_in_counts_too() -> None:
    one = access()
    for _ in range(50):
        one.charge(one.with_digest(DIGEST), 1.0, 100.0)
    assert num_allowed(one, 100.0) == 10


def test_keys_whose_limits_are_whole_again_are_not_told_of() -> None:
    one = access()
    one.spend(one.with_digest(DIGEST), 3000.0, 100.0)
    ((digest, requests, tokens),) = one.left(100.0)
    assert (digest, tokens) == (DIGEST, 0.5)
    assert requests == pytest.approx(59 / 60)
    assert one.left(160.0) == []
    one.update(routing(), 160.0)
    one.resume([(DIGEST, 0.0, None), ("f" * 64, 0.5, 0.5)], 160.0)  # of keys that are gone
    assert one.with_digest(DIGEST) == ApiKey(name="", sha256="")
    assert one.left(160.0) == []
