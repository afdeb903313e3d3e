"""JSON's own texts as rules: strings, numbers, white space, and values of any kind.

Only what every parser takes is written: no control characters in strings, no halves of UTF-16
pairs, no numbers that overflow. White space is bounded, for a model that may write blanks for ever
does: after a bracket, comma or colon comes nothing, a blank, or a new line and its indentation.
The rest of a string is one rule that ends with its quote: with a rule for each character, what is
permitted next would be found out anew for each of them, which takes a thousand times as long.
"""

import json

from quire_engine.grammar.rules import Alternative, Ref, Repeat, Rules, literal

CHARACTER = r"[^\"\\\x00-\x1f\x7f\ud800-\udfff]"
"""One that stands for itself in a string."""
_ESCAPE = r'(["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))'
_DIGITS = "[0-9]{1,15}"
_INTEGER = '"-"? ("0" | [1-9] [0-9]{0,15})'
_NUMBER = rf'{_INTEGER} ("." {_DIGITS})? ([eE] [+\-]? [0-9]{{1,2}})?'


def write_json(value: object) -> str:
    """Write a value as JSON without white space, as GBNF."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a UTF-16 pair has to stay an escape
        text = json.dumps(value, separators=(",", ":"))
    return literal(text)


def blank(rules: Rules) -> Ref:
    """White space between two parts."""
    return rules.define_once("blank", ('""',), ('" "',), (r'"\n"', r"[ \t]{0,16}"))


def string(rules: Rules) -> Ref:
    """Any string."""
    rest = string_rest(rules)
    return rules.define_once("string", (r'"\""', rest))


def string_rest(rules: Rules) -> Ref:
    """What follows the beginning of a string, its end included."""
    rest = Ref("string-rest")
    return rules.define_once(rest, (r'"\""',), (CHARACTER, rest), (r'"\\"', escape(rules), rest))


def escape(rules: Rules) -> Ref:
    """What follows a backslash."""
    return rules.define_once("escape", (_ESCAPE,))


def integer(rules: Rules) -> Ref:
    """Any integer of up to 16 digits."""
    return rules.define_once("integer", (_INTEGER,))


def number(rules: Rules) -> Ref:
    """Any number that a double holds."""
    return rules.define_once("number", (_NUMBER,))


def boolean(rules: Rules) -> Ref:
    """True or false."""
    return rules.define_once("boolean", ('"true"',), ('"false"',))


def null(rules: Rules) -> Ref:
    """Null."""
    return rules.define_once("null", ('"null"',))


def value(rules: Rules) -> Ref:
    """A value of any kind."""
    name = Ref("value")
    if not rules.is_defined(name):
        rules.define(name, ())
        kinds = (string, number, boolean, null, any_object, any_array)
        rules.define(name, [(kind(rules),) for kind in kinds])
    return name


def any_object(rules: Rules) -> Ref:
    """An object with whatever members."""
    one = rules.define_once("any-member", member(rules, string(rules), value(rules)))
    return rules.define_once("any-object", *object_of(rules, one))


def any_array(rules: Rules) -> Ref:
    """An array of whatever values."""
    return rules.define_once("any-array", *array_of(rules, value(rules)))


def member(rules: Rules, key: str, content: Ref) -> tuple[str, ...]:
    """A key and its value."""
    return key, '":"', blank(rules), content


def object_of(rules: Rules, one: Ref, least: int = 0, most: int | None = None) -> list[Alternative]:
    """Alternatives of an object of so many members of one kind."""
    return _many(rules, ('"{"', '"}"'), one, least, most)


def array_of(rules: Rules, one: Ref, least: int = 0, most: int | None = None) -> list[Alternative]:
    """Alternatives of an array of so many values of one kind."""
    return _many(rules, ('"["', '"]"'), one, least, most)


def _many(
    rules: Rules, brackets: tuple[str, str], one: Ref, least: int, most: int | None
) -> list[Alternative]:
    gap = blank(rules)
    begin, end = brackets
    alternatives: list[Alternative] = [(begin, gap, end)] if least == 0 else []
    if most != 0:
        more = rules.add("more", ('","', gap, one))
        alternatives.append((begin, gap, one, *repeated(more, max(least - 1, 0), most), gap, end))
    return alternatives


def repeated(rest: Ref, least: int, most: int | None) -> tuple[str, ...]:
    """Write a rule so often, `most` counting one that came before."""
    if most is None:
        return (Repeat(rest, f"{{{least},}}" if least else "*"),)
    return (Repeat(rest, f"{{{least},{most - 1}}}"),) if most > 1 else ()


def any_number(rest: Ref) -> Repeat:
    """Write a rule as often as one likes, or not at all."""
    return Repeat(rest, "*")
