"""Arrivals and lengths of requests: recorded ones from files, generated ones from a seed.

Two file formats are read, told apart by their first character:

    CSV     TIMESTAMP,ContextTokens,GeneratedTokens       the Azure LLM inference traces
    JSONL   {"arrival_seconds": 0.5, "prompt_tokens": 374, "output_tokens": 44}
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TextIO

import msgspec

from quire_engine.errors import ConfigError

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MAX_TOKENS = 10_000_000
_MAX_DIGITS = 12


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace."""

    arrival_seconds: float
    """Since the trace's first request, never falling from one request to the next."""
    num_prompt_tokens: int
    num_output_tokens: int


class _JsonRow(msgspec.Struct, forbid_unknown_fields=True):
    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int


def read_trace(source: Path | str | TextIO) -> list[TraceRequest]:
    """Read a trace from a path or an open text file.

    Raises
    ------
    ConfigError
        The file cannot be read or is empty, or a row is wrong: the message names its line.
    """
    if not isinstance(source, Path | str):
        return _parse(source, getattr(source, "name", "trace"))
    try:
        with Path(source).open(encoding="utf-8", newline="") as file:
            return _parse(file, str(source))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the trace {source}: {error}") from error


def scale_rate(trace: Iterable[TraceRequest], factor: float) -> list[TraceRequest]:
    """The same requests, arriving `factor` times as fast."""
    if not math.isfinite(factor) or factor <= 0:
        raise ConfigError(f"a trace's rate is scaled by a factor above 0, not {factor}")
    return [
        TraceRequest(r.arrival_seconds / factor, r.num_prompt_tokens, r.num_output_tokens)
        for r in trace
    ]


def _parse(lines: Iterable[str], name: str) -> list[TraceRequest]:
    numbered = _skip_blank(lines)
    first_number, first = next(numbered, (0, ""))
    if not first:
        raise ConfigError(f"trace {name} is empty")
    if first.lstrip().startswith("{"):
        rows = _parse_json(first_number, first, numbered, name)
    else:
        rows = _parse_csv(first_number, first, numbered, name)
    requests: list[TraceRequest] = []
    for number, request in rows:
        _check_request(request, requests, f"{name}, line {number}")
        requests.append(request)
    if not requests:
        raise ConfigError(f"trace {name} has a heading and no requests")
    origin = requests[0].arrival_seconds
    return [
        TraceRequest(r.arrival_seconds - origin, r.num_prompt_tokens, r.num_output_tokens)
        for r in requests
    ]


def _skip_blank(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _parse_csv(
    first_number: int, heading: str, rows: Iterator[tuple[int, str]], name: str
) -> Iterator[tuple[int, TraceRequest]]:
    columns = _split(heading.removeprefix("\ufeff"))
    missing = [column for column in AZURE_COLUMNS if column not in columns]
    if missing:
        raise ConfigError(
            f"{name}, line {first_number}: column {missing[0]} is missing; the heading must "
            f"name {', '.join(AZURE_COLUMNS)}"
        )
    where = [columns.index(column) for column in AZURE_COLUMNS]
    for number, row in rows:
        cells = _split(row)
        if len(cells) != len(columns):
            raise ConfigError(
                f"{name}, line {number}: {len(cells)} cells under {len(columns)} columns"
            )
        time, prompt, output = (cells[index] for index in where)
        place = f"{name}, line {number}"
        yield (
            number,
            TraceRequest(
                _parse_time(time, place),
                _parse_count(prompt, AZURE_COLUMNS[1], place),
                _parse_count(output, AZURE_COLUMNS[2], place),
            ),
        )


def _parse_json(
    first_number: int, first: str, rows: Iterator[tuple[int, str]], name: str
) -> Iterator[tuple[int, TraceRequest]]:
    decoder = msgspec.json.Decoder(_JsonRow)
    for number, line in chain([(first_number, first)], rows):
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{name}, line {number}: {error}") from error
        yield number, TraceRequest(row.arrival_seconds, row.prompt_tokens, row.output_tokens)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _parse_time(text: str, place: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{place}: TIMESTAMP must look like 2023-11-16 18:15:46.68, not {text!r}"
        ) from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _parse_count(text: str, column: str, place: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise ConfigError(f"{place}: {column} must be a whole number, not {text[:40]!r}")
    return int(text)


def _check_request(request: TraceRequest, earlier: list[TraceRequest], place: str) -> None:
    counts = (request.num_prompt_tokens, request.num_output_tokens)
    if min(counts) < 1 or max(counts) > MAX_TOKENS:
        raise ConfigError(f"{place}: prompt and output have 1 to {MAX_TOKENS} tokens, not {counts}")
    if not math.isfinite(request.arrival_seconds):
        raise ConfigError(f"{place}: the arrival is not a time")
    if earlier and request.arrival_seconds < earlier[-1].arrival_seconds:
        raise ConfigError(f"{place}: arrives before the request above it; sort the trace by time")
