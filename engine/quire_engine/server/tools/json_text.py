"""Finds the end of JSON values in text that comes in pieces, without judging what is in them."""

import json
import re
from collections.abc import Callable

from quire_engine.server.tools.text_source import Reading, TextSource

_IN_STRING = re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL)
_SCALAR = re.compile(r"[A-Za-z0-9+.-]*")


def read_text(source: TextSource) -> Reading[str | None]:
    """Read a string, whose first quote comes next; None if it has no end or is not JSON."""
    begin = source.at
    source.at += 1
    if not (yield from _read_string(source, _ignore)):
        return None
    try:
        return str(json.loads(source.text[begin : source.at], strict=False))
    except ValueError:
        return None


def read_value(source: TextSource) -> Reading[str]:
    """Read any value and return it as it is; empty if none comes, or it has no end."""
    begin = source.at
    first = yield from source.peek()
    if first == '"':
        source.at += 1
        is_whole = yield from _read_string(source, _ignore)
    elif first in "{[" and first:
        is_whole = yield from read_nested(source, _ignore, stop="")
    else:
        yield from source.peek_past(_SCALAR)
        is_whole = True
    return source.text[begin : source.at] if is_whole else ""


def read_nested(source: TextSource, show: Callable[[str], None], *, stop: str) -> Reading[bool]:
    """Read an object or a list, whose bracket comes next; whether it came to its end.

    Parameters
    ----------
    show
        Is given the text as it is read; may commit.
    stop
        Outside of strings no JSON holds this text: what has no end ends before it. May be empty.
    """
    marks = re.compile(r'["{}\[\]]' + (f"|{re.escape(stop[0])}" if stop else ""))
    depth = 0
    while (yield from source.has_more()):
        match = marks.search(source.text, source.at)
        _show_until(source, match.start() if match else len(source.text), show)
        if match is None:
            continue
        if stop and match[0] == stop[0]:
            begin = source.at
            if (yield from source.skip(stop)):
                source.at = begin
                return False
        _show_until(source, source.at + 1, show)
        if match[0] == '"':
            if not (yield from _read_string(source, show)):
                return False
        elif match[0] in "{}[]":
            depth += 1 if match[0] in "{[" else -1
            if depth == 0:
                return True
    return False


def _read_string(source: TextSource, show: Callable[[str], None]) -> Reading[bool]:
    """Read a string to its end, its first quote being read already."""
    while (yield from source.has_more()):
        match = _IN_STRING.match(source.text, source.at)
        _show_until(source, match.end() if match else source.at, show)
        if source.text.startswith('"', source.at):
            _show_until(source, source.at + 1, show)
            return True
        if source.text.startswith("\\", source.at):  # what is escaped has not come yet
            _show_until(source, source.at + 1, show)
            if (yield from source.has_more()):
                _show_until(source, source.at + 1, show)
    return False


def _show_until(source: TextSource, end: int, show: Callable[[str], None]) -> None:
    text, source.at = source.text[source.at : end], end
    if text:
        show(text)


def _ignore(_text: str) -> None:
    pass
