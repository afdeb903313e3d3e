"""What an engine said before it ended, out of the end of its log: what a user has to know of it.

Engines in pods log in JSON, one record a line; what ends one before its log is set up is plain.
"""

import msgspec

_MARK = "quire: error:"
_GRAVE = frozenset(("critical", "error"))
_MOST_LINES = 3


class _Record(msgspec.Struct):
    level: str
    message: str


def last_words(log: str) -> str:
    """Return the last line of error; where there is none, the last lines. Empty for no log."""
    said = [_read(line) for line in log.splitlines() if line.strip()]
    grave = [words for words, is_grave in said if is_grave]
    return grave[-1] if grave else " ".join(words for words, _ in said[-_MOST_LINES:])


def _read(line: str) -> tuple[str, bool]:
    """The words of a line, and whether they are of an error."""
    if _MARK in line:
        return line.split(_MARK, 1)[1].strip(), True
    try:
        record = msgspec.json.decode(line, type=_Record)
    except msgspec.MsgspecError:
        return line.strip(), False
    return record.message, record.level in _GRAVE
