"""Regular expressions that are taken: what the compiler would read otherwise is refused.

They match a text as a whole, whether they are anchored or not. Look-around, references to groups
and word boundaries are no part of regular languages; some other spellings the compiler ignores with
a warning, or takes for what they are not.
"""

import re
import warnings

from quire_engine.grammar.refusal import SchemaError

MAX_EXPRESSION_CHARACTERS = 4096
_KNOWN_ESCAPES = frozenset("dDwWsSnrtfv0")
_HEX_ESCAPES = {"x": 2, "u": 4}


def check_expression(pattern: str) -> str:
    """Return the expression without its outer anchors.

    Raises
    ------
    SchemaError
        It is too long, malformed, or has what cannot be heeded.
    """
    if len(pattern) > MAX_EXPRESSION_CHARACTERS:
        raise SchemaError(
            f"a regular expression has at most {MAX_EXPRESSION_CHARACTERS} characters"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may mean something else one day
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SchemaError(f"not a regular expression: {error}") from None
    inner = pattern.removeprefix("^")
    if inner.endswith("$") and not _is_escaped(inner, len(inner) - 1):
        inner = inner[:-1]
    _scan(inner)
    return inner


def _is_escaped(text: str, place: int) -> bool:
    num_backslashes = len(text[:place]) - len(text[:place].rstrip("\\"))
    return num_backslashes % 2 == 1


def _scan(pattern: str) -> None:
    place, is_in_class = 0, False
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += _check_escape(pattern, place)
            continue
        if is_in_class:
            if pattern.startswith(("[:", "[.", "[="), place):
                raise SchemaError("POSIX classes such as [:alpha:] cannot be heeded")
            is_in_class = character != "]"
        elif character in "^$":
            raise SchemaError(
                f"{character} inside a regular expression cannot be heeded: it matches as a whole"
            )
        elif character == "[":
            is_in_class = True
            place += 1 + pattern.startswith("^", place + 1)
            if pattern.startswith("]", place):
                raise SchemaError("a class that begins with ] has to escape it")
            continue
        elif pattern.startswith("(?", place) and not pattern.startswith("(?:", place):
            raise SchemaError(
                f"{pattern[place : place + 4]!r} cannot be heeded: of groups with ? only (?: is"
            )
        place += 1


def _check_escape(pattern: str, place: int) -> int:
    """Return how long an escape is."""
    character = pattern[place + 1]
    length = _HEX_ESCAPES.get(character, 0)
    digits = pattern[place + 2 : place + 2 + length]
    is_known = character in _KNOWN_ESCAPES or not character.isalnum()
    is_hex = length and re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits)
    if not is_known and not is_hex:
        raise SchemaError(f"\\{character} cannot be heeded in a regular expression")
    return 2 + length
