"""Logging of all processes: text for people or JSON for machines, one record a line.

    text    2026-11-28T11:45:03.123Z INFO  api quire_engine.server.run: message [request_id=...]
    json    {"time": ..., "level": "info", "process": "api", "logger": ..., "message": ...}

Control characters are written as escapes, so that nothing a message quotes can begin a line of its
own or colour a terminal. Of an exception, where it happened is logged, and what it says only if it
is one of quire's own, which quote nobody: what others say may hold a prompt. The core, which has
only token ids, logs it all, and so does every process at level debug.
"""

import json
import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from quire_engine.config import ObservabilityConfig
from quire_engine.errors import QuireError

_log = logging.getLogger(__name__)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TELLING = (QuireError, OSError, MemoryError)
"""Exceptions whose text is logged: it names settings, files and sizes."""
_WITHHELD = "(--log-level debug logs what it says)"
_NOISY = ("httpx", "httpcore", "urllib3")
"""Libraries that tell at info what they do."""

RequestId = Callable[[], str | None]


class _Formatter(logging.Formatter):
    """What text and JSON share."""

    def __init__(self, process: str, request_id: RequestId, *, tells_all: bool) -> None:
        super().__init__()
        self._process = process
        self._request_id = request_id
        self._tells_all = tells_all

    def when(self, record: logging.LogRecord) -> str:
        """The record's time, in UTC with milliseconds."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"

    def describe_exception(self, record: logging.LogRecord) -> list[str]:
        """Lines of the exception and those that led to it."""
        error = record.exc_info[1] if record.exc_info else None
        return [] if error is None else _describe(error, self._tells_all)


class _TextFormatter(_Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and indented ones for an exception."""
        line = (
            f"{self.when(record)} {record.levelname:<7} {self._process} {record.name}:"
            f" {escape(record.getMessage())}"
        )
        if (request_id := self._request_id()) is not None:
            line += f" [request_id={request_id}]"
        return "\n    ".join([line, *map(escape, self.describe_exception(record))])


class _JsonFormatter(_Formatter):
    """For machines."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        fields: dict[str, Any] = {
            "time": self.when(record),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := self._request_id()) is not None:
            fields["request_id"] = request_id
        fields |= getattr(record, "fields", {})
        if lines := self.describe_exception(record):
            fields["exception"] = "\n".join(lines)
        return json.dumps(fields, default=str)


def configure(
    config: ObservabilityConfig, process: str, *, request_id: RequestId = lambda: None
) -> None:
    """Log this process's records to standard error, as configured.

    Parameters
    ----------
    process
        Which of the engine's processes this is: api or core.
    request_id
        The id of the request that is being answered where it is called.
    """
    kind = _JsonFormatter if config.log_format == "json" else _TextFormatter
    handler = logging.StreamHandler(sys.stderr)
    tells_all = config.log_level == "debug" or process == "core"
    handler.setFormatter(kind(process, request_id, tells_all=tells_all))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.log_level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
    sys.excepthook = _log_last_words
    threading.excepthook = _log_end_of_thread


def announcer(config: ObservabilityConfig, process: str) -> Callable[[str], None]:
    """Tell the operator, on standard output, what the server is doing, in the log's format."""
    if config.log_format == "text":
        return lambda text: print(f"quire: {escape(text)}", flush=True)
    formatter = _JsonFormatter(process, lambda: None, tells_all=False)

    def announce(text: str) -> None:
        record = logging.LogRecord("quire", logging.INFO, "", 0, text, None, None)
        print(formatter.format(record), flush=True)

    return announce


def _log_last_words(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """What ends the process, in the log's format."""
    if issubclass(kind, KeyboardInterrupt):
        return
    _log.critical("the process ends with an error", exc_info=(kind, error, trace))


def _log_end_of_thread(ending: threading.ExceptHookArgs) -> None:
    if ending.exc_value is not None and not isinstance(ending.exc_value, SystemExit):
        _log.error("a thread ended with an error", exc_info=ending.exc_value)


def escape(text: str) -> str:
    """Text without control characters: escapes stand for them."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _describe(error: BaseException, tells_all: bool) -> list[str]:
    lines: list[str] = []
    led_to = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if led_to is not None:
        lines += [*_describe(led_to, tells_all), "which led to:"]
    for frame in traceback.extract_tb(error.__traceback__):
        lines.append(f"{frame.filename}:{frame.lineno} in {frame.name}")
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            lines += [*_describe(one, tells_all), "which is one of:"]
    text = str(error) if tells_all or isinstance(error, _TELLING) else _WITHHELD
    lines.append(f"{type(error).__module__}.{type(error).__qualname__}: {text}")
    return lines
