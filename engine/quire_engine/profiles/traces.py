"""Arrivals and lengths of requests: recorded ones from files, generated ones from a seed.

Two file formats are read, told apart by their first line, also where gzip has packed them:

    CSV     TIMESTAMP,ContextTokens,GeneratedTokens       the Azure LLM inference traces
    JSONL   {"arrival_seconds": 0.5, "prompt_tokens": 374, "output_tokens": 44}
"""

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from quire_engine.errors import ConfigError

if TYPE_CHECKING:
    from random import Random

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MAX_TOKENS = 10_000_000
_MAX_DIGITS = 12
_MAX_SHOWN = 40
_GZIP = b"\x1f\x8b"
_FORMATS = (
    f"write CSV with the heading {','.join(AZURE_COLUMNS)}, or lines of JSON such as"
    ' {"arrival_seconds": 0.5, "prompt_tokens": 374, "output_tokens": 44}'
)


class TraceRowError(ConfigError):
    """A row is wrong; without it the trace may be right."""


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


_JSON_ROWS = msgspec.json.Decoder(_JsonRow)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a trace that was left out."""

    line: int
    reason: str
    """With the file's name and the line."""


def read_trace(
    source: Path | str | TextIO, *, left_out: list[BadRow] | None = None
) -> list[TraceRequest]:
    """Read a trace from a path or an open text file.

    Parameters
    ----------
    left_out
        Takes rows that are wrong, which are left out then, and rows out of order are sorted.
        Without it the first wrong row is an error.

    Raises
    ------
    ConfigError
        The file cannot be read, is empty, of neither format or has no row that is right.
    TraceRowError
        Without `left_out`: a row is wrong, and the message names its line.
    """
    if not isinstance(source, Path | str):
        return _parse(source, getattr(source, "name", "trace"), left_out)
    try:
        with Path(source).open("rb") as file:
            packed = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(_GZIP) else file
            with TextIOWrapper(packed, encoding="utf-8", newline="") as lines:
                return _parse(lines, str(source), left_out)
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read the trace {source}: {error}") from error


def scale_rate(trace: Iterable[TraceRequest], factor: float) -> list[TraceRequest]:
    """The same requests, arriving `factor` times as fast."""
    if not math.isfinite(factor) or factor <= 0:
        raise ConfigError(f"a trace's rate is scaled by a factor above 0, not {factor}")
    return [
        TraceRequest(r.arrival_seconds / factor, r.num_prompt_tokens, r.num_output_tokens)
        for r in trace
    ]


def multiply_rate(
    trace: Iterable[TraceRequest], factor: float, random: "Random", *, spread_seconds: float = 30.0
) -> list[TraceRequest]:
    """So many times as many requests in the same time: its hours and minutes stay as they are.

    Each comes as often as `factor` says, a fraction by chance; copies are moved. What is moved
    over an end of the trace is mirrored there, or the first second would have a quarter of a
    minute's copies.

    Parameters
    ----------
    spread_seconds
        By at most so much copies come earlier or later than the request itself.

    Raises
    ------
    ConfigError
        The factor is none, or so small that nothing is left.
    """
    if not math.isfinite(factor) or factor <= 0:
        raise ConfigError(f"a trace's rate is multiplied by a factor above 0, not {factor}")
    known = list(trace)
    last = known[-1].arrival_seconds
    made = []
    for one in known:
        count = int(factor) + (random.random() < factor % 1)
        for copy in range(count):
            moved = random.uniform(-spread_seconds, spread_seconds) if copy else 0.0
            arrival = _mirror(one.arrival_seconds + moved, last)
            made.append(TraceRequest(arrival, one.num_prompt_tokens, one.num_output_tokens))
    if not made:
        raise ConfigError(f"nothing is left of {len(known)} requests at {factor:g} times the rate")
    return sorted(made, key=lambda r: r.arrival_seconds)


def _mirror(seconds: float, last: float) -> float:
    """Fold a time into a trace's, 0 to `last`, at its ends."""
    if last <= 0:
        return 0.0
    folded = abs(seconds) % (2 * last)
    return min(folded, 2 * last - folded)


ParseRow = Callable[[str, str], TraceRequest]
"""Reads a row; its place is for the error."""


def _parse(lines: Iterable[str], name: str, left_out: list[BadRow] | None) -> list[TraceRequest]:
    parse_row, numbered = _open(_skip_blank(lines), name, left_out)
    requests: list[TraceRequest] = []
    for number, row in numbered:
        place = f"{name}, line {number}"
        try:
            request = parse_row(row, place)
            _check_request(request, place)
            if left_out is None:
                _check_order(request, requests, place)
        except TraceRowError as error:
            if left_out is None:
                raise
            left_out.append(BadRow(number, str(error)))
        else:
            requests.append(request)
    if not requests:
        wrong = f"no row that is right; the first: {left_out[0].reason}" if left_out else ""
        raise ConfigError(f"trace {name} has {wrong or 'a heading and no requests'}")
    if left_out is not None:
        requests.sort(key=lambda r: r.arrival_seconds)
    origin = requests[0].arrival_seconds
    return [
        TraceRequest(r.arrival_seconds - origin, r.num_prompt_tokens, r.num_output_tokens)
        for r in requests
    ]


def _open(
    numbered: Iterator[tuple[int, str]], name: str, left_out: list[BadRow] | None
) -> tuple[ParseRow, Iterator[tuple[int, str]]]:
    """Tell the format by the first line; where lines may be left out, by the first of a format."""
    unlike = ""
    for number, line in numbered:
        text, place = line.removeprefix("\ufeff").strip(), f"{name}, line {number}"
        if text.startswith("{"):
            return _parse_json_row, chain([(number, text)], numbered)
        columns = _split(text)
        missing = [column for column in AZURE_COLUMNS if column not in columns]
        if not missing:
            return _csv_parser(columns), numbered
        if len(missing) < len(AZURE_COLUMNS):
            raise ConfigError(
                f"{place}: looks like CSV, and column {missing[0]} is missing; the heading must"
                f" name {', '.join(AZURE_COLUMNS)}"
            )
        unlike = unlike or f"{place}: looks like {_likeness(text)}, which is no trace; {_FORMATS}"
        if left_out is None:
            break
        left_out.append(BadRow(number, f"{place}: neither a heading nor a JSON object"))
    raise ConfigError(unlike or f"trace {name} is empty")


def _likeness(text: str) -> str:
    """What a first line of neither format is."""
    if text.startswith("["):
        return "a JSON array, not lines of objects"
    shown = repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
    return f"CSV without a known heading ({shown})" if "," in text else shown


def _skip_blank(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _csv_parser(columns: list[str]) -> ParseRow:
    """Return how rows under these columns are read."""
    where = [columns.index(column) for column in AZURE_COLUMNS]

    def parse_row(row: str, place: str) -> TraceRequest:
        cells = _split(row)
        if len(cells) != len(columns):
            said = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
            raise TraceRowError(f"{place}: {said} under {len(columns)} columns")
        time, prompt, output = (cells[index] for index in where)
        return TraceRequest(
            _parse_time(time, place),
            _parse_count(prompt, AZURE_COLUMNS[1], place),
            _parse_count(output, AZURE_COLUMNS[2], place),
        )

    return parse_row


def _parse_json_row(line: str, place: str) -> TraceRequest:
    try:
        row = _JSON_ROWS.decode(line)
    except msgspec.DecodeError as error:
        raise TraceRowError(f"{place}: {error}") from error
    return TraceRequest(row.arrival_seconds, row.prompt_tokens, row.output_tokens)


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _parse_time(text: str, place: str) -> float:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise TraceRowError(
            f"{place}: TIMESTAMP must look like 2023-11-16 18:15:46.68, not {text!r}"
        ) from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _parse_count(text: str, column: str, place: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise TraceRowError(f"{place}: {column} must be a whole number, not {text[:40]!r}")
    return int(text)


def _check_request(request: TraceRequest, place: str) -> None:
    counts = (request.num_prompt_tokens, request.num_output_tokens)
    if min(counts) < 1 or max(counts) > MAX_TOKENS:
        raise TraceRowError(
            f"{place}: prompt and output have 1 to {MAX_TOKENS} tokens, not {counts}"
        )
    if not math.isfinite(request.arrival_seconds):
        raise TraceRowError(f"{place}: the arrival is not a time")


def _check_order(request: TraceRequest, earlier: list[TraceRequest], place: str) -> None:
    if earlier and request.arrival_seconds < earlier[-1].arrival_seconds:
        raise TraceRowError(f"{place}: arrives before the request above it; sort the trace by time")
