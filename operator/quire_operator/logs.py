"""The operator's log: a JSON object a line, or lines for people.

A line for each plan that changed something, with what and why; for each event that is written; for
each change of the leader; and for what goes wrong. None for a look that found everything right.

While the API server is away, every watch and every service has something to say of it, every few
seconds: of warnings from the same line of code only the first few come at once, then one a while,
which says how many it stands for. Those of services are counted apart: a noisy one hides no other.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_AT_ONCE = 5
_REST_SECONDS = 60.0
_AT_ONCE_OF_A_SERVICE = 1
_REST_SECONDS_OF_A_SERVICE = 600.0
_MOST_PLACES = 5000
"""Lines of code and services that are counted; all are forgotten beyond."""

_Where = tuple[str, int, str]
"""File, line, and service if it is about one."""


def configure(log_format: str) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Sparing())
    if log_format == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def of(service: tuple[str, str], **fields: object) -> dict[str, Any]:
    """`extra` of a record about a service: fields that a JSON line has beside its message."""
    return {"fields": {"namespace": service[0], "service": service[1], **fields}}


@dataclass
class _Place:
    """A line of code that warns."""

    num_shown: int = 0
    num_hidden: int = 0
    shown_at: float = 0.0


class Sparing(logging.Filter):
    """Lets a warning that repeats itself through only now and then.

    Parameters
    ----------
    clock
        Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._places: dict[_Where, _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown; one that stands for others gets their number."""
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        service = _service_of(record)
        at_once = _AT_ONCE_OF_A_SERVICE if service else _AT_ONCE
        rest_seconds = _REST_SECONDS_OF_A_SERVICE if service else _REST_SECONDS
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        where = (record.pathname, record.lineno, service)
        place = self._places.setdefault(where, _Place())
        has_rested = now - place.shown_at >= rest_seconds
        if not has_rested and place.num_shown >= at_once:
            place.num_hidden += 1
            return False
        if place.num_hidden:
            record.msg = f"{record.getMessage()} (and {place.num_hidden} more like it)"
            record.args = None
        is_quiet_again = has_rested and not place.num_hidden
        place.num_shown = 1 if is_quiet_again else place.num_shown + 1
        place.num_hidden, place.shown_at = 0, now
        return True


def _service_of(record: logging.LogRecord) -> str:
    fields = getattr(record, "fields", {})
    return f"{fields['namespace']}/{fields['service']}" if "service" in fields else ""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
