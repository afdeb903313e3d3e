"""Strings of a schema as GBNF: lengths, patterns, formats, and keys that are none of some."""

from typing import Any

from quire_engine.grammar import json_text
from quire_engine.grammar.expressions import check_expression
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.rules import Ref, Rules, literal

MAX_STRING_LENGTH = 1 << 20
_ALNUM = "[a-zA-Z0-9]"
_WORD = f"{_ALNUM} ([a-zA-Z0-9\\-]{{0,30}} {_ALNUM})?"
_HOST = f'{_WORD} ("." {_WORD}){{0,4}}'
_OCTET = '("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9]{2} | [1-9] [0-9] | [0-9])'
_YEAR = '([1-9] [0-9]{3} | "0" [0-9]{2} [1-9])'
_DATE = (
    f"{_YEAR} ("
    '("-01-" | "-03-" | "-05-" | "-07-" | "-08-" | "-10-" | "-12-")'
    ' ("0" [1-9] | [1-2] [0-9] | "3" [0-1])'
    ' | ("-04-" | "-06-" | "-09-" | "-11-") ("0" [1-9] | [1-2] [0-9] | "30")'
    ' | "-02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))'
)
_TIME = (
    '("0" [0-9] | "1" [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,6})?'
    ' ("Z" | [+\\-] ("0" [0-9] | "1" [0-3]) (":00" | ":30"))'
)
_HEX = "[0-9a-fA-F]"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": f'{_HEX}{{8}} "-" {_HEX}{{4}} "-" {_HEX}{{4}} "-" {_HEX}{{4}} "-" {_HEX}{{12}}',
    "ipv4": f'{_OCTET} "." {_OCTET} "." {_OCTET} "." {_OCTET}',
    "ipv6": f'{_HEX}{{1,4}} (":" {_HEX}{{1,4}}){{7}}',
    "hostname": _HOST,
    "email": f'{_ALNUM} ([a-zA-Z0-9_\\-]{{0,30}} {_ALNUM})? "@" {_WORD} ("." {_WORD}){{1,3}}',
    "uri": f'("http" | "https") "://" {_HOST} ("/" [a-zA-Z0-9\\-._~]{{0,64}}){{0,8}}',
}
"""Formats that are heeded: each of these texts is right, though there are right ones beside."""


def write_string(rules: Rules, schema: dict[str, Any]) -> Ref:
    """Make the rule of a schema's strings.

    Raises
    ------
    SchemaError
        What is asked for cannot be heeded, or not at once.
    """
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    has_length = least > 0 or most is not None
    wishes = [word for word in ("pattern", "format") if word in schema]
    if len(wishes) + has_length > 1:
        raise SchemaError(
            "of pattern, format, and minLength with maxLength, only one is heeded at a time: put"
            " the length into the pattern"
        )
    if "pattern" in schema:
        pattern = check_expression(schema["pattern"])
        return rules.add(
            "pattern", (r'"\""', f"Regex({literal(pattern)}, json_string=true)", r'"\""')
        )
    if "format" in schema:
        return rules.add("format", (r'"\""', _find_format(schema["format"]), r'"\""'))
    if has_length:
        return _write_lengths(rules, least, None if most is None else int(most))
    return json_text.string(rules)


def _write_lengths(rules: Rules, least: int, most: int | None) -> Ref:
    if max(least, most or 0) > MAX_STRING_LENGTH:
        raise SchemaError(f"lengths of strings are at most {MAX_STRING_LENGTH}")
    if most is not None and most < least:
        return rules.add("never")
    if most is None:
        begin = f"{json_text.CHARACTER}{{{least}}}"
        return rules.add("string", (r'"\""', begin, json_text.string_rest(rules)))
    return rules.add("string", (r'"\""', f"{json_text.CHARACTER}{{{least},{most}}}", r'"\""'))


def _find_format(name: str) -> str:
    found = FORMATS.get(name)
    if found is None:
        raise SchemaError(
            f"the format {name[:40]!r} cannot be heeded; those that can: {', '.join(FORMATS)}"
        )
    return found


def write_other_key(rules: Rules, taken: list[str]) -> Ref:
    """Make the rule of keys that are none of those taken, which no escape spells another way."""
    rest = Ref("key-rest")
    rules.define_once(rest, (r'"\""',), (json_text.CHARACTER, rest))
    spelled = [name for name in taken if _is_plain(name)]
    return rules.add("key", (r'"\""', _write_branch(rules, rest, sorted(set(spelled)))))


def _write_branch(rules: Rules, rest: Ref, names: list[str]) -> Ref:
    """Make the rule of what goes on after a beginning that all names share."""
    if not names:
        return rest
    nexts: dict[str, list[str]] = {}
    for name in names:
        if name:
            nexts.setdefault(name[0], []).append(name[1:])
    excluded = "".join(map(_escape_in_class, nexts))
    alternatives: list[tuple[str, ...]] = [(f"{json_text.CHARACTER[:-1]}{excluded}]", rest)]
    if "" not in names:
        alternatives.append((r'"\""',))
    alternatives += [
        (literal(character), _write_branch(rules, rest, tails))
        for character, tails in nexts.items()
    ]
    return rules.add("key-branch", *alternatives)


def _is_plain(name: str) -> bool:
    return not any(character in '"\\\x7f' or character < " " for character in name)


def _escape_in_class(character: str) -> str:
    return "\\" + character if character in "]^-[" else character
