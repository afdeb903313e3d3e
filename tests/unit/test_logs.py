"""What goes to the log, in both formats, and what does not."""

import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest

from quire_engine import logs
from quire_engine.config import ObservabilityConfig
from quire_engine.errors import ModelError

PROMPT = "the-prompt-is-secret"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Root handlers, level and hooks as they were."""
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, sys.excepthook
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook = hook
    logging.captureWarnings(False)


Written = Callable[[], str]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Written:
    """What was logged since it was last asked."""
    return lambda: capsys.readouterr().err


def catch(error: Exception) -> Exception:
    """An exception that was raised."""
    try:
        raise error
    except type(error) as caught:
        return caught


def log_failure(error: Exception) -> None:
    last = KeyError(PROMPT)
    last.__cause__ = catch(error)
    logging.getLogger("quire_engine.test").error("failed", exc_info=catch(last))


def test_a_record_of_json_is_one_line_with_the_request_id(written: Written) -> None:
    logs.configure(ObservabilityConfig(log_format="json"), "api", request_id=lambda: "id-1")
    logging.getLogger("quire_engine.test").warning(
        "two\nlines %s", "\x1b[31m", extra={"fields": {"n": 3}}
    )

    [line] = written().splitlines()
    record = json.loads(line)
    assert record["message"] == "two\nlines \x1b[31m"
    assert (record["level"], record["process"], record["request_id"], record["n"]) == (
        *("warning", "api", "id-1", 3),
    )
    assert record["time"].endswith("Z")


def test_control_characters_cannot_begin_a_line_of_text(written: Written) -> None:
    logs.configure(ObservabilityConfig(), "core")
    forged = "x\n2026-01-01T00:00:00.000Z ERROR   api forged: \r\x1b[31m\u2028\x85 done"
    logging.getLogger("quire_engine.test").info("said %s", forged)

    [line] = written().splitlines()
    assert " core quire_engine.test: said x\\n2026" in line
    assert "\\x1b[31m\\u2028\\x85 done" in line


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_of_an_exception_the_places_are_logged_and_not_what_it_says(
    log_format: str, written: Written
) -> None:
    logs.configure(ObservabilityConfig(log_format=log_format), "api")  # type: ignore[arg-type]
    log_failure(ValueError(PROMPT))
    text = written()

    assert PROMPT not in text
    assert "builtins.KeyError: (--log-level debug" in text
    assert "builtins.ValueError: (--log-level debug" in text
    assert "in catch" in text
    assert (len(text.splitlines()) == 1) == (log_format == "json")


def test_errors_of_our_own_are_told_for_they_quote_nobody(written: Written) -> None:
    logs.configure(ObservabilityConfig(), "api")
    log_failure(ModelError("the file is damaged"))

    assert "quire_engine.errors.ModelError: the file is damaged" in written()


def test_at_level_debug_everything_is_told(written: Written) -> None:
    logs.configure(ObservabilityConfig(log_level="debug"), "api")
    log_failure(ValueError(PROMPT))

    assert f"builtins.ValueError: {PROMPT}" in written()


def test_the_level_is_the_least_that_is_logged(written: Written) -> None:
    logs.configure(ObservabilityConfig(log_level="warning"), "api")
    log = logging.getLogger("quire_engine.test")
    log.info("low")
    log.warning("high")

    text = written()
    assert "low" not in text
    assert "high" in text


def test_what_ends_the_process_is_in_the_logs_format(written: Written) -> None:
    logs.configure(ObservabilityConfig(log_format="json"), "api")
    error = catch(ValueError(PROMPT))
    sys.excepthook(ValueError, error, error.__traceback__)

    record = json.loads(written())
    assert record["level"] == "critical"
    assert PROMPT not in record["exception"]


def test_announcements_have_the_logs_format(capsys: pytest.CaptureFixture[str]) -> None:
    logs.announcer(ObservabilityConfig(), "api")("ready: m")
    assert capsys.readouterr().out == "quire: ready: m\n"

    logs.announcer(ObservabilityConfig(log_format="json"), "api")("ready: m")
    assert json.loads(capsys.readouterr().out)["message"] == "ready: m"


def test_of_a_group_each_exceptions_places_are_logged(written: Written) -> None:
    logs.configure(ObservabilityConfig(log_format="json"), "api")
    group = ExceptionGroup(
        "several", [catch(ValueError(PROMPT)), catch(ModelError("no such file"))]
    )
    logging.getLogger("quire_engine.test").error("failed", exc_info=catch(group))

    said = json.loads(written())["exception"]
    assert "ValueError" in said
    assert "no such file" in said
    assert "in catch" in said
    assert PROMPT not in said
