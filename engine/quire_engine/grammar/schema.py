"""A grammar from a JSON schema: every text of it is a value that is valid by the schema.

    schema ──► check_keywords ──► one rule for each part ──► rules that can end ──► GBNF

The other way round it need not hold. Members come in the order of `properties`, and members that
the schema does not name come only where `additionalProperties` is given, or where it names none at
all; an array has no more items than it describes; a part without `type` has the type that its
keywords speak of; numbers with bounds have few decimal places. So it is with other engines, and it
is what makes small models' answers good. `$ref` leads to a rule of its own, so schemas may be
recursive.
"""

from typing import Any
from urllib.parse import unquote

from quire_engine.grammar import json_text
from quire_engine.grammar.containers import write_array, write_object
from quire_engine.grammar.disjoint import are_apart
from quire_engine.grammar.keywords import ANNOTATIONS, OF_TYPE, check_keywords
from quire_engine.grammar.merging import Schema, is_same, list_types, merge
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.rules import Ref, Rules
from quire_engine.grammar.scalars import write_integer, write_number
from quire_engine.grammar.strings import write_string

_MAX_MERGES = 2000
_MAX_RULES = 50_000
_CHOICES = ("anyOf", "oneOf")


class SchemaWriter:
    """Writes the rules of one schema; several may share their rules."""

    def __init__(self, root: Schema, rules: Rules) -> None:
        check_keywords(root)
        self._root = root
        self.rules = rules
        self._by_reference: dict[str, Ref] = {}
        self._checked: set[str] = set()
        self._num_merges = 0

    def write(self) -> Ref:
        """Make the rule of the whole schema.

        Raises
        ------
        SchemaError
            It cannot be heeded.
        """
        return self.part(self._root)

    def part(self, schema: Schema) -> Ref:
        """Make the rule of a part of it: a rule without end, if no value satisfies it."""
        if len(self.rules) > _MAX_RULES:
            raise SchemaError("the schema makes too large a grammar")
        if isinstance(schema, bool):
            return json_text.value(self.rules) if schema else self.rules.add("never")
        wishes = {word: value for word, value in schema.items() if word not in ANNOTATIONS}
        wishes = {w: v for w, v in wishes.items() if w != "$id" and not w.startswith("x-")}
        if "$ref" in wishes:
            return self._reference(wishes)
        if "allOf" in wishes:
            return self.part(self.flatten(wishes))
        for keyword in _CHOICES:
            if keyword in wishes:
                return self._choice(keyword, wishes)
        return self._leaf(wishes)

    def flatten(self, schema: Schema) -> Schema:
        """Replace `$ref` and `allOf` at the top of a schema by what they say."""
        if isinstance(schema, bool):
            return schema
        self._num_merges += 1
        if self._num_merges > _MAX_MERGES:
            raise SchemaError("allOf and $ref of the schema lead to too many others")
        rest = {word: value for word, value in schema.items() if word not in ("$ref", "allOf")}
        parts = [self._resolve(schema["$ref"])] if "$ref" in schema else []
        parts += schema.get("allOf", [])
        merged: Schema = rest
        for part in parts:
            merged = merge(merged, self.flatten(part))
        return merged

    def _reference(self, wishes: dict[str, Any]) -> Ref:
        if len(wishes) > 1:
            return self.part(self.flatten(wishes))
        reference = wishes["$ref"]
        if reference not in self._by_reference:
            name = self._by_reference[reference] = self.rules.reserve("ref")
            self.rules.define(name, [(self.part(self._resolve(reference)),)])
        return self._by_reference[reference]

    def _resolve(self, reference: str) -> Schema:
        """Find what a reference means; only parts of the same schema are looked at."""
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaError(
                f"$ref {reference[:80]!r} cannot be heeded: only references into the same schema,"
                " such as #/$defs/name, are"
            )
        found: Any = self._root
        for step in reference.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise SchemaError(f"$ref {reference[:80]!r} leads nowhere")
        if reference not in self._checked:  # it may lead into an annotation
            check_keywords(found)
            self._checked.add(reference)
        schema: Schema = found
        return schema

    def _choice(self, keyword: str, wishes: dict[str, Any]) -> Ref:
        rest = {word: value for word, value in wishes.items() if word != keyword}
        branches = wishes[keyword]
        if rest:
            branches = [merge(rest, self.flatten(branch)) for branch in branches]
        if keyword == "oneOf" and not are_apart([self.flatten(branch) for branch in branches]):
            raise SchemaError(
                "oneOf cannot be heeded where a value may fit two of its schemas: use anyOf, or"
                " give each a required property with a const of its own"
            )
        return self.rules.add(keyword, *[(self.part(branch),) for branch in branches])

    def _leaf(self, wishes: dict[str, Any]) -> Ref:
        if "const" in wishes or "enum" in wishes:
            return self._values(wishes)
        if not wishes:
            return json_text.value(self.rules)
        types = list_types(wishes["type"]) if "type" in wishes else _implied_types(wishes)
        if "number" in types and "integer" in types:
            types.remove("integer")
        made = [self._typed(name, wishes) for name in dict.fromkeys(types)]
        return made[0] if len(made) == 1 else self.rules.add("types", *[(name,) for name in made])

    def _values(self, wishes: dict[str, Any]) -> Ref:
        """Make the rule of listed values, those of the type alone if there is one too."""
        values = [wishes["const"]] if "const" in wishes else wishes["enum"]
        if "const" in wishes and "enum" in wishes:
            values = [value for value in values if any(is_same(value, o) for o in wishes["enum"])]
        beside = wishes.keys() - {"const", "enum", "type"}
        if beside:
            raise SchemaError(
                f"{', '.join(sorted(beside))} beside enum or const cannot be heeded: list only the"
                " values that are meant"
            )
        if "type" in wishes:
            types = list_types(wishes["type"])
            values = [value for value in values if any(has_type(value, name) for name in types)]
        return self.rules.add("values", *[(json_text.write_json(value),) for value in values])

    def _typed(self, name: str, wishes: dict[str, Any]) -> Ref:
        match name:
            case "string":
                return write_string(self.rules, wishes)
            case "integer":
                return write_integer(self.rules, wishes)
            case "number":
                return write_number(self.rules, wishes)
            case "boolean":
                return json_text.boolean(self.rules)
            case "null":
                return json_text.null(self.rules)
            case "object":
                return write_object(self.rules, wishes, self.part)
        return write_array(self.rules, wishes, self.part)


def _implied_types(wishes: dict[str, Any]) -> list[str]:
    """Types that the keywords speak of."""
    return [name for name, keywords in OF_TYPE.items() if not keywords.isdisjoint(wishes)]


def has_type(value: object, name: str) -> bool:
    """Whether a JSON value has a type; 1.0 is a whole number."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "boolean": bool,
        "null": type(None),
        "object": dict,
        "array": list,
    }
    if name in kinds:
        return isinstance(value, kinds[name])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (name == "number" or value == int(value))  # type: ignore[call-overload]
