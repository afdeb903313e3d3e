"""API keys from a Secret: good entries count, bad ones are named, and nothing of them is told."""

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_operator.planner.api_keys import (
    MAX_DOCUMENT_BYTES,
    ApiKeys,
    RoutedKey,
    keys_of_document,
    read_keys,
)

KEY = "sk-0123456789abcdef"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


def secret(**entries: str) -> ApiKeys:
    """What a Secret with these entries says."""
    return read_keys(
        {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
    )


def test_a_value_is_the_key_itself_with_or_without_a_lines_end() -> None:
    assert secret(a=KEY).keys == (RoutedKey(name="a", sha256=DIGEST),)
    assert secret(a=f"{KEY}\n") == secret(a=KEY)


def test_an_object_says_what_the_key_may() -> None:
    limits: dict[str, Any] = {
        "models": ["chat"],
        "max_priority": "background",
        "requests_per_minute": 600,
        "tokens_per_minute": 200_000,
        "salt": "team-a",
    }
    wanted = RoutedKey(
        name="a",
        sha256=DIGEST,
        models=("chat",),
        max_priority="background",
        requests_per_minute=600,
        tokens_per_minute=200_000,
        salt="team-a",
    )
    for given_key in ({"key": KEY}, {"sha256": DIGEST}):
        assert secret(a=json.dumps(given_key | limits)) == ApiKeys(keys=(wanted,))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("short", "less than 16 characters"),
        ("", "no client can send"),
        ("with spaces in the middle", "no client can send"),
        ("sk-ümläute-0123456789", "no client can send"),
        ("{", "not valid JSON"),
        (json.dumps(KEY), "is JSON, but no object"),
        (json.dumps([KEY]), "is JSON, but no object"),
        ("x" * 4097, "more than 4096 characters"),
        ("{}", 'either "key" or "sha256"'),
        (json.dumps({"key": KEY, "sha256": DIGEST}), 'either "key" or "sha256"'),
        (json.dumps({"key": 5}), '"key" that is not text'),
        (json.dumps({"sha256": DIGEST.upper()}), "64 hexadecimal digits"),
        (json.dumps({"key": KEY, "max_priority": "highest"}), '"interactive" or "background"'),
        (json.dumps({"key": KEY, "requests_per_minute": 0}), "whole number from 1 on"),
        (json.dumps({"key": KEY, "tokens_per_minute": 1.5}), "whole number from 1 on"),
        (json.dumps({"key": KEY, "models": "chat"}), "a list of at most 64 names"),
        (json.dumps({"key": KEY, "priority": "background"}), "these fields alone: key, sha256"),
    ],
)
def test_a_bad_entry_is_named_with_what_to_do_and_the_others_count(value: str, words: str) -> None:
    found = secret(good=KEY, bad=value)

    assert [one.name for one in found.keys] == ["good"]
    (problem,) = found.problems
    assert problem.startswith("bad ")
    assert words in problem


def test_what_is_no_text_is_named() -> None:
    found = read_keys({"a": "!", "b": base64.b64encode(b"\xff" * 20).decode()})
    assert [one.split()[0] for one in found.problems] == ["a", "b"]


def test_the_same_key_twice_is_named_since_gateways_take_no_such_document() -> None:
    found = secret(a=KEY, b=json.dumps({"sha256": DIGEST}), c=KEY + "c")

    assert [one.name for one in found.keys] == ["a", "c"]
    assert found.problems == ("b has the same key as a: remove one of them",)


def test_more_keys_than_a_document_holds_are_named() -> None:
    size = MAX_DOCUMENT_BYTES // 100
    found = secret(**{f"k{index}": f"{KEY}-{index}" for index in range(size)})

    assert 0 < len(found.keys) < size
    assert len(found.keys) + len(found.problems) == size
    assert "use fewer keys" in found.problems[-1]


@given(
    st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=24, max_size=40),
    st.sampled_from(
        (
            "{0} {0}",
            "{{{0}",
            '{{"{0}": 1}}',
            '{{"key": ["{0}"]}}',
            '{{"sha256": "{0}"}}',
            '{{"max_priority": "{0}"}}',
            '{{"models": "{0}"}}',
            '["{0}"]ü',
        )
    ),
)
def test_no_message_has_anything_of_a_value(key: str, form: str) -> None:
    (problem,) = secret(entry=form.format(key)).problems
    assert key not in problem


def test_keys_of_a_document_that_was_written_are_read_back() -> None:
    keys = secret(a=KEY, b=json.dumps({"key": KEY + "b", "salt": "s"})).keys
    entry = {"name": "a", "sha256": DIGEST}
    text = json.dumps({"schema_version": 1, "api_keys_secret": "s", "api_keys": [entry]})

    assert keys_of_document(text, "s") == keys[:1]
    assert keys_of_document(text, "other") == ()
    assert keys_of_document("{", "s") == keys_of_document("{}", "s") == ()
