"""What is told of an engine that ended, by what its log ends with."""

import json

from quire_operator.planner.last_words import last_words


def record(level: str, message: str) -> str:
    return json.dumps({"time": "2026-01-01T00:00:00Z", "level": level, "message": message})


def test_of_records_the_last_error_is_told_without_what_is_around_it() -> None:
    log = [
        'cut off at its beginning", "message": "x"}',
        record("info", "looking up acme/thing@main: 0 %"),
        record("error", "a try has failed"),
        record("critical", "cannot ask https://huggingface.co for acme/thing"),
        record("info", "ended"),
    ]
    assert last_words("\n".join(log)) == "cannot ask https://huggingface.co for acme/thing"


def test_without_an_error_the_end_is_told() -> None:
    log = [record("info", "one"), "two", "", record("info", "three"), "Killed"]
    assert last_words("\n".join(log)) == "two three Killed"


def test_an_error_before_the_log_began_is_told() -> None:
    assert last_words("x\nquire: error: no such flag\n") == "no such flag"


def test_nothing_is_nothing() -> None:
    assert last_words("") == ""
    assert last_words("\n  \n") == ""
