"""Draws a view for a terminal of any width: what matters least is left out first."""

from collections.abc import Callable, Iterator
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from quire_engine.protocol.messages import BlockCounts
from quire_local.top.view import STALE_SECONDS, ReplicaView, ServiceView, View

_HELD, _CACHED, _FREE = "█▒·"
_ASCII = str.maketrans({_HELD: "#", _CACHED: "+", _FREE: "."})
_GAP = 2
_BAR, _LONGEST_BAR, _SHORTEST_NAME = 10, 40, 10
_LEGEND = f"{_HELD} held {_CACHED} cached {_FREE} free"
_FULL, _TIGHT = 1.0, 0.8
"""Pressure from which a replica is red, and yellow."""


class _Column(NamedTuple):
    title: str
    width: int
    rank: int
    """Those of the highest go first."""
    cell: Callable[[ReplicaView], Text | str]
    is_number: bool = True


def draw(view: View, console: Console, height: int | None = None) -> RenderableType:
    """The whole picture, in at most `height` lines."""
    lines = [*_head(view, console.width)]
    num_undrawn = 0
    for service in view.services:
        if height is not None and len(lines) > height:
            num_undrawn += _num_lines(service, console.width)  # hundreds would take a processor
        else:
            lines += [Text(), *_summary(service, console.width), *_rows(service, console)]
    if not view.services and not view.problem:
        lines += [Text(), Text("no service yet: kubectl apply, or quire up, makes one")]
    if height is not None and len(lines) > height:
        num_left = len(lines) - height + 1 + num_undrawn
        lines = [*lines[: height - 1], Text(f"... {num_left} more lines: --service NAME", "bold")]
    is_plain = not (console.encoding or "").lower().startswith("utf")
    return Group(*(_fit(one, is_plain) for one in lines))


def _head(view: View, width: int) -> Iterator[Text]:
    who = f"{len(view.gateways)} gateways" if len(view.gateways) != 1 else "1 gateway"
    parts = [Text("quire top", "bold"), Text(view.source), Text(who), Text(_LEGEND, "dim")]
    yield from _pack(parts, width)
    if view.problem:
        age = f"figures are {view.age_seconds:.0f} s old; " if view.age_seconds else ""
        words = f"{view.problem}; {age}trying again"
        yield from (Text(line, "bold red") for line in wrap(words, max(width, 10)))


def _summary(service: ServiceView, width: int) -> Iterator[Text]:
    parts = [Text(f"{service.namespace}/{service.name}", "bold"), Text("nobody waits")]
    if service.queued:
        words = f"{service.queued} wait, the oldest {service.oldest_seconds:.1f} s"
        parts[1] = Text(words, "yellow")
    parts.append(Text(f"{_figure(service.requests_per_second)} requests/s"))
    if service.refusals_per_second:
        parts.append(Text(f"{_figure(service.refusals_per_second)} refused/s", "red"))
    parts.append(Text(f"{_figure(service.output_tokens_per_second)} tokens/s out"))
    half, most = service.first_byte_p50_seconds, service.first_byte_p95_seconds
    if half is not None and most is not None:
        parts.append(Text(f"first byte p50 {_seconds(half)} p95 {_seconds(most)}"))
    yield from _pack(parts, width)


def _num_lines(service: ServiceView, width: int) -> int:
    """How many lines a service takes."""
    num_rows = 1 + len(service.replicas)  # a head, or that there is none
    return 1 + len(list(_summary(service, width))) + num_rows


def _pack(parts: list[Text], width: int) -> Iterator[Text]:
    """As many parts on a line as fit; the others on further lines, indented."""
    line = parts[0].copy()
    for part in parts[1:]:
        if line.cell_len + _GAP + part.cell_len > width:
            yield line
            line = Text(" " * _GAP).append_text(part)
        else:
            line = Text.assemble(line, " " * _GAP, part)
    yield line


def _rows(service: ServiceView, console: Console) -> list[Text]:
    if not service.replicas:
        return [Text("no replica")]
    columns, bar_width = _choose(service, console.width)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        width = bar_width if column.title == "BLOCKS" else column.width
        table.add_column(
            column.title,
            width=width,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.is_number else "left",
        )
    for replica in service.replicas:
        style = "dim" if replica.phase == "away" else ""
        table.add_row(*(_cell(column, replica, bar_width) for column in columns), style=style)
    return [
        Text("").join(Text(part.text, part.style or "") for part in line)
        for line in console.render_lines(table, pad=False)
    ]


def _cell(column: _Column, replica: ReplicaView, bar_width: int) -> Text | str:
    if column.title == "BLOCKS":
        return bar(replica.blocks, bar_width)
    return column.cell(replica)


def _choose(service: ServiceView, width: int) -> tuple[list[_Column], int]:
    """The columns that fit, and how wide bars are."""
    name = min(_longest(service, lambda one: one.name), max(width // 3, _SHORTEST_NAME))
    gpu = max(3, _longest(service, lambda one: one.accelerator))
    held = max(4, _longest(service, _held))
    columns = [
        _Column("REPLICA", name, 0, lambda one: _tail(one.name, name), is_number=False),
        _Column("GPU", gpu, 3, lambda one: one.accelerator or "-", is_number=False),
        _Column("BLOCKS", _BAR, 1, lambda _: "", is_number=False),
        _Column("HELD", held, 6, _held),
        _Column("RUN", 4, 5, lambda one: str(one.running)),
        _Column("WAIT", 4, 5, lambda one: str(one.waiting)),
        _Column("PRESSURE", 13, 2, _pressure, is_number=False),
        _Column("TOKENS/S", 8, 4, lambda one: _figure(one.tokens_per_second)),
        _Column("PREEMPTED", 9, 8, _preempted),
        _Column("STATE", 8, 7, _phase, is_number=False),
        _Column("AGE", 6, 9, _age),
    ]
    while len(columns) > 1 and _width(columns) > width:
        columns.remove(max(columns, key=lambda one: one.rank))
    spare = width - _width(columns)
    return columns, min(_BAR + max(spare, 0), _LONGEST_BAR)


def _longest(service: ServiceView, text_of: Callable[[ReplicaView], str]) -> int:
    return max(len(text_of(one)) for one in service.replicas)


def _width(columns: list[_Column]) -> int:
    return sum(column.width + _GAP for column in columns)


def bar(blocks: BlockCounts | None, width: int) -> Text:
    """Blocks as a bar: what is held shows, however little."""
    if blocks is None or blocks.total == 0:
        return Text("-")
    held = min(-(-blocks.held * width // blocks.total), width)
    cached = min(round(blocks.cached * width / blocks.total), width - held)
    return Text.assemble(
        (_HELD * held, "cyan"), (_CACHED * cached, "blue"), (_FREE * (width - held - cached), "dim")
    )


def _tail(name: str, width: int) -> str:
    """A name's end, by which pods of one Deployment differ."""
    return name if len(name) <= width else f"…{name[1 - width :]}"


def _held(replica: ReplicaView) -> str:
    blocks = replica.blocks
    return f"{blocks.held}/{blocks.total}" if blocks and blocks.total else "-"


def _pressure(replica: ReplicaView) -> Text | str:
    if replica.pressure is None:
        return "-"
    style = "" if replica.pressure < _TIGHT else "yellow" if replica.pressure < _FULL else "red"
    return Text(f"{100 * replica.pressure:3.0f}% {replica.binding}", style)


def _preempted(replica: ReplicaView) -> Text | str:
    style = "red" if replica.preemptions_per_second else ""
    return Text(str(replica.preemptions), style)


def _phase(replica: ReplicaView) -> Text:
    colours = {"ready": "green", "away": "red"}
    return Text(replica.phase, colours.get(replica.phase, "yellow"))


def _age(replica: ReplicaView) -> Text:
    version = "" if replica.schema_version in (None, 1) else f" v{replica.schema_version}"
    style = "red" if replica.age_seconds > STALE_SECONDS else ""
    return Text(_seconds(replica.age_seconds) + version, style)


def _figure(value: float | None) -> str:
    """Three digits, or a dash where it is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _fit(text: Text, is_plain: bool) -> Text:
    """One line of the terminal, in letters that it has."""
    if is_plain:
        spans, style = text.spans, text.style
        text = Text(text.plain.translate(_ASCII).encode("ascii", "replace").decode(), style)
        text.spans = spans
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
