"""Objects and arrays of a schema."""

from collections.abc import Callable
from typing import Any

from quire_engine.grammar import json_text
from quire_engine.grammar.merging import Schema
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.rules import Alternative, Ref, Rules
from quire_engine.grammar.strings import write_other_key

Part = Callable[[Schema], Ref]
"""Makes the rule of a part of the schema."""
MAX_OPTIONAL_IN_ONE_RULE = 64
MAX_ITEMS = 100_000


def write_object(rules: Rules, schema: dict[str, Any], part: Part) -> Ref:
    """Make the rule of a schema's objects.

    Raises
    ------
    SchemaError
        The number of members cannot be heeded.
    """
    named = schema.get("properties", {})
    required = list(dict.fromkeys(schema.get("required", [])))
    rest: Schema = schema.get("additionalProperties", not named and not required)
    missing = [name for name in required if name not in named]
    members = {**named, **{name: schema.get("additionalProperties", True) for name in missing}}
    _check_count(schema, members, required, has_rest=rest is not False)
    if not members:
        least, most = int(schema.get("minProperties", 0)), schema.get("maxProperties")
        one = rules.add("member", json_text.member(rules, json_text.string(rules), part(rest)))
        most = 0 if rest is False else None if most is None else int(most)
        return rules.add("object", *json_text.object_of(rules, one, least, most))
    return _Members(rules, members, required, rest, part).write()


def _check_count(
    schema: dict[str, Any], members: dict[str, Any], required: list[str], *, has_rest: bool
) -> None:
    least, most = schema.get("minProperties", 0), schema.get("maxProperties")
    # members that are not named may repeat a key, and count once
    if least > max(len(required), 0 if members else has_rest):
        raise SchemaError(
            f"minProperties: {least} cannot be heeded beside {len(required)} required properties:"
            " require those that are meant"
        )
    if members and most is not None and (has_rest or most < len(members)):
        raise SchemaError(
            "maxProperties cannot be heeded beside optional properties: name those that are meant,"
            ' and set "additionalProperties": false'
        )


class _Members:
    """Members in the order of a schema's properties, and then those that it does not name.

    after-0   what may follow when no property was decided: each that may come next, or the end
    after-k   what may follow the k-th property
    """

    def __init__(
        self,
        rules: Rules,
        members: dict[str, Any],
        required: list[str],
        rest: Schema,
        part: Part,
    ) -> None:
        self._rules = rules
        self._names = list(members)
        self._required = set(required)
        self._gap = json_text.blank(rules)
        self._members = [
            rules.add(
                "member", json_text.member(rules, json_text.write_json(name), part(members[name]))
            )
            for name in self._names
        ]
        self._others: Ref | None = None
        if rest is not False:
            key = write_other_key(rules, self._names)
            self._others = rules.add("other", json_text.member(rules, key, part(rest)))

    def write(self) -> Ref:
        """Make the rule of the object."""
        count = len(self._names)
        after = [self._rules.reserve("after") for _ in range(count + 1)]
        for index in range(count + 1):
            firsts = self._firsts(index, after)
            followers = [('","', self._gap, *first) for first in firsts if first]
            self._rules.define(after[index], [*followers, *[() for f in firsts if not f]])
        begins = [("{}", ()) if not first else ("", first) for first in self._firsts(0, after)]
        alternatives: list[Alternative] = [
            ('"{"', self._gap, '"}"') if empty else ('"{"', self._gap, *first, self._gap, '"}"')
            for empty, first in begins
        ]
        return self._rules.add("object", *alternatives)

    def _firsts(self, index: int, after: list[Ref]) -> list[Alternative]:
        """Return what may come where all before `index` is decided; () is the end."""
        found: list[Alternative] = []
        for place in range(index, len(self._names)):
            found.append((self._members[place], after[place + 1]))
            if self._names[place] in self._required:
                return found
        if self._others is not None:
            more = self._rules.define_once(f"more-{self._others}", ('","', self._gap, self._others))
            found.append((self._others, json_text.any_number(more)))
        return [*found, ()]


def write_array(rules: Rules, schema: dict[str, Any], part: Part) -> Ref:
    """Make the rule of a schema's arrays.

    Raises
    ------
    SchemaError
        Its items have to differ, or are too many.
    """
    least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
    most = None if most is None else int(most)
    if schema.get("uniqueItems") and (most is None or most > 1):
        raise SchemaError("uniqueItems cannot be heeded: leave it out, or set it to false")
    if max(least, most or 0) > MAX_ITEMS:
        raise SchemaError(f"minItems and maxItems are at most {MAX_ITEMS}")
    items = schema.get("items")
    firsts: list[Schema] = items if isinstance(items, list) else schema.get("prefixItems", [])
    rest: Schema | None = schema.get("additionalItems") if isinstance(items, list) else items
    if most is not None and most < least:
        return rules.add("never")
    if not firsts:
        one = part(True if rest is None else rest)
        return rules.add("array", *json_text.array_of(rules, one, least, most))
    if rest is None:  # more than those described only where so many are asked for
        rest, most = True, min(max(least, len(firsts)), len(firsts) if most is None else most)
        most = max(most, least)
    return _write_tuple(rules, [part(first) for first in firsts], part(rest), least, most)


def _write_tuple(rules: Rules, firsts: list[Ref], rest: Ref, least: int, most: int | None) -> Ref:
    """Make the rule of an array whose first items have schemas of their own."""
    gap = json_text.blank(rules)
    count = len(firsts)
    alternatives: list[Alternative] = []
    for length in range(least, min(count, count if most is None else most) + 1):
        items = [item for first in firsts[:length] for item in ('","', gap, first)][1:]
        closing = (gap, '"]"') if items else ('"]"',)
        alternatives.append(('"["', *(items or [gap]), *closing))
    if most is None or most > count:
        more = rules.add("more", ('","', gap, rest))
        items = [item for first in firsts for item in ('","', gap, first)][1:]
        extra = json_text.repeated(
            more, max(least - count, 1), None if most is None else most - count + 1
        )
        alternatives.append(('"["', *items, *extra, gap, '"]"'))
    return rules.add("array", *alternatives)
