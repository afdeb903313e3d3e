"""Documents, keys and limits."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_gateway.choosing.rate_limit import RateLimit
from quire_gateway.errors import ApiError, RoutingError
from quire_gateway.routing.access import NOBODY, Access, may_use
from quire_gateway.routing.document import read_documents
from quire_gateway.routing.file_source import FileSource
from quire_operator.planner.documents import routing_document
from quire_operator.planner.observed import Observed
from tests.unit.control.builders import L4, SETTINGS, service
from tests.unit.gateway.builders import document, routing

SECRET = b"sesame"
KEY = {"name": "team", "sha256": hashlib.sha256(SECRET).hexdigest()}


def test_what_the_operator_writes_is_what_a_gateway_reads() -> None:
    seen = Observed(service=service(L4, access={"public": True}), root_secret=b"s" * 32)
    written = routing_document(seen, replace(SETTINGS, token_epoch=3))
    (read,) = read_documents(msgspec.json.encode(written))
    assert has(msgspec.to_builtins(read), msgspec.to_builtins(written))


def has(read: Any, written: Any) -> bool:
    """Whether all that was written was read, whatever fields a reader knows besides."""
    if isinstance(written, dict):
        return all(has(read[name], value) for name, value in written.items())
    if isinstance(written, list | tuple):
        return len(read) == len(written) and all(map(has, read, written))
    return bool(read == written)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": 2}, "upgrade"),
        ({"model_names": []}, "model_names"),
        ({"engines": [{"address": "nowhere"}]}, "host:port"),
        ({"engines": [{"address": "a:70000"}]}, "host:port"),
        ({"api_keys": [{"name": "a", "sha256": "x"}]}, "64"),
        ({"api_keys": [KEY, KEY | {"name": "b"}]}, "twice"),
        ({"api_keys": [KEY | {"requests_per_minute": 0}]}, "requests_per_minute"),
    ],
)
def test_what_is_wrong_with_a_document_is_said(changes: dict[str, object], said: str) -> None:
    with pytest.raises(RoutingError, match=said):
        read_documents(msgspec.json.encode(document(**changes)))


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"null", b"[" * 9999, b"\xff"])
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(RoutingError):
        read_documents(text)


def test_what_was_used_of_a_limit_stays_used_when_there_are_more_gateways() -> None:
    limit = RateLimit(60.0, now=0.0)
    limit.take(30.0, 0.0)
    limit.change(30.0, now=0.0)
    assert limit.seconds_until(15.0, 0.0) == 0.0
    assert limit.seconds_until(16.0, 0.0) == pytest.approx(2.0)
    assert limit.seconds_until(30.0, 30.0) == 0.0


def test_what_a_request_took_is_put_right_in_the_end() -> None:
    key = KEY | {"tokens_per_minute": 1000}
    access = Access(routing(api_keys=[key]), lambda seconds: seconds)
    who = access.identify(SECRET, "")
    access.spend(who, 900.0, now=0.0)
    access.correct(who, -800.0, now=0.0)
    access.spend(who, 900.0, now=0.0)
    access.correct(who, 100.0, now=0.0)
    with pytest.raises(ApiError):
        access.spend(who, 1.0, now=0.0)
    access.correct(NOBODY, 5.0, now=0.0)


def test_two_services_cannot_have_one_models_name() -> None:
    several = [document(name="a"), document(name="b")]
    with pytest.raises(RoutingError, match="twice"):
        read_documents(msgspec.json.encode(several))


def test_a_file_that_breaks_leaves_what_was_read_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "routing.json"
    path.write_bytes(msgspec.json.encode(document()))
    source = FileSource(path)
    assert not source.renew()

    for broken in (b"{", msgspec.json.encode(document(schema_version=9))):
        path.write_bytes(broken)
        assert not source.renew()
        assert not source.renew()
        assert source.is_stale
    path.unlink()
    assert not source.renew()
    os.mkfifo(path)  # to open it would wait for ever
    assert not source.renew()
    assert source.documents[0].name == "chat"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4  # each fault once, though it was looked at twice
    assert "schema_version 9" in told[1]

    path.unlink()
    path.write_bytes(msgspec.json.encode(document(name="other")))
    assert source.renew()
    assert (source.documents[0].name, source.is_stale) == ("other", False)


def access(**changes: object) -> Access:
    return Access(routing(**changes), lambda seconds: seconds)


def refusal(made: Access, presented: bytes | None, host: str = "") -> int:
    with pytest.raises(ApiError) as caught:
        made.identify(presented, host)
    return caught.value.status


def test_keys_are_asked_for_where_there_are_any() -> None:
    made = access(api_keys=[KEY])
    assert made.identify(SECRET, "").name == "team"
    assert refusal(made, None) == 401
    assert refusal(made, b"Sesame") == 401
    assert refusal(made, KEY["sha256"].encode()) == 401


def test_keys_that_have_not_come_yet_let_nobody_in() -> None:
    assert refusal(access(api_keys_secret="chat-keys"), SECRET) == 401


def test_without_keys_a_service_is_for_the_cluster_unless_it_is_public() -> None:
    closed = access(host="models.example.com")
    assert closed.identify(None, "chat.default.svc") is NOBODY
    assert refusal(closed, None, "models.example.com") == 403
    assert access(host="m.example.com", is_public=True).identify(None, "m.example.com") is NOBODY


def test_a_key_may_be_for_some_models_only() -> None:
    (key,) = routing(api_keys=[KEY | {"models": ["m"]}]).api_keys
    assert may_use(key, "m")
    assert not may_use(key, "other")
    assert may_use(NOBODY, "other")


def test_limits_hold_through_new_documents_and_say_when_to_come_again() -> None:
    limited = KEY | {"requests_per_minute": 2, "tokens_per_minute": 1000}
    made = access(api_keys=[limited])
    key = made.identify(SECRET, "")
    made.spend(key, 100.0, 0.0)
    made.spend(key, 100.0, 0.0)
    made.update(routing(api_keys=[limited, KEY | {"name": "b", "sha256": "0" * 64}]), 0.0)
    with pytest.raises(ApiError) as caught:
        made.spend(key, 100.0, 0.0)
    assert caught.value.status == 429
    assert "limit of requests a minute" in str(caught.value)
    assert caught.value.retry_after_seconds == pytest.approx(30.0)

    made.spend(key, 900.0, 30.0)
    made.spend(key, 600.0, 90.0)  # all had come back; 400 are left
    with pytest.raises(ApiError) as caught:
        made.spend(key, 600.0, 90.0)
    assert "limit of tokens a minute" in str(caught.value)
    assert caught.value.retry_after_seconds == pytest.approx(12.0)


@given(
    per_minute=st.integers(1, 1000),
    steps=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.1, 50.0)), max_size=40),
)
def test_no_minute_gets_more_than_its_limit_and_what_was_saved(
    per_minute: int, steps: list[tuple[float, float]]
) -> None:
    limit, now, taken = RateLimit(per_minute, 0.0), 0.0, 0.0
    for pause, amount in steps:
        now += pause
        wait = limit.seconds_until(amount, now)
        if wait == 0.0:
            limit.take(amount, now)
            taken += amount
        else:
            assert limit.seconds_until(amount, now + wait * 1.001 + 0.001) == 0.0
    assert taken <= per_minute * (1.0 + now / 60.0) + 50.0
