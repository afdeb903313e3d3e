"""What a run prints: services whenever something of them changes, events, and logs."""

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from quire_local.up.resource_file import Key
from quire_operator.planner.events import Event
from quire_operator.resource.status import InferenceServiceStatus

_COLOURS = (36, 33, 35, 32, 34, 31)
"""Of names, in turn: ANSI."""
_HEADING = ("SERVICE", "MODEL", "READY", "REPLICAS", "ON", "REASON")
_LONGEST_MESSAGE = 500

Row = tuple[str, ...]


class Terminal:
    """Standard output, and standard error for what goes wrong."""

    def __init__(self, output: TextIO, *, shows_logs: bool = True) -> None:
        self._output = output
        self._shows_logs = shows_logs
        self._is_coloured = output.isatty() and "NO_COLOR" not in os.environ
        self._names: list[str] = []
        self._rows: list[Row] = []
        self._held: list[str] | None = None

    def hold(self) -> None:
        """Keep lines back: another thread prints something that they would cut into pieces."""
        self._held = []

    def let_go(self) -> None:
        """Print what was kept back, and go on."""
        held, self._held = self._held, None
        for line in held or ():
            self.say(line)

    def say(self, text: str) -> None:
        """Print a line of the run's own."""
        if self._held is not None:
            self._held.append(text)
        else:
            print(text, file=self._output, flush=True)

    def log(self, name: str, line: str) -> None:
        """Print a line of one process's output, with its name before it."""
        if not self._shows_logs:
            return
        if name not in self._names:
            self._names.append(name)
        prefix = f"{name} |"
        if self._is_coloured:
            colour = _COLOURS[self._names.index(name) % len(_COLOURS)]
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        self.say(f"{prefix} {line}")

    def event(self, subject: str, event: Event) -> None:
        """Print an event."""
        mark = "" if event.kind == "Normal" else "!"
        self.say(f"quire: {subject}: {mark}{event.reason}: {event.message[:_LONGEST_MESSAGE]}")

    def show(self, statuses: Mapping[Key, InferenceServiceStatus]) -> None:
        """Print all services, if anything that the table says has changed."""
        rows = [_row(key, status) for key, status in statuses.items()]
        if rows == self._rows:
            return
        self._rows = rows
        for line in _table([_HEADING, *rows]):
            self.say(line)


def _row(key: Key, status: InferenceServiceStatus) -> Row:
    ready = next(one for one in status.conditions if one.type == "Ready")
    return (
        key[1],
        status.model,
        ready.status,
        f"{status.ready_replicas}/{status.desired_replicas}",
        status.ready_on or "-",
        ready.reason,
    )


def _table(rows: Sequence[Row]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
