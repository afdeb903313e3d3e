"""Whether schemas surely have no value in common: then `oneOf` is `anyOf`."""

from itertools import combinations
from typing import Any

from quire_engine.grammar.merging import Schema, is_same, list_types

MAX_BRANCHES = 64


def are_apart(branches: list[Schema]) -> bool:
    """Whether no two of the schemas have a value in common, as far as it can be seen."""
    if len(branches) > MAX_BRANCHES:
        return False
    return all(_is_apart(left, right) for left, right in combinations(branches, 2))


def _is_apart(left: Schema, right: Schema) -> bool:
    if left is False or right is False:
        return True
    if left is True or right is True:
        return False
    if _kinds(left).isdisjoint(_kinds(right)):
        return True
    own, other = _values(left), _values(right)
    if own is not None and other is not None:
        return not any(is_same(a, b) for a in own for b in other)
    return _differ_in_a_property(left, right)


def _differ_in_a_property(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether both are objects with a property of different fixed values."""
    if _kinds(left) != {"object"} or _kinds(right) != {"object"}:
        return False
    for name in set(left.get("required", [])) & set(right.get("required", [])):
        own, other = (_values(side.get("properties", {}).get(name, True)) for side in (left, right))
        if own is not None and other is not None:
            return not any(is_same(a, b) for a in own for b in other)
    return False


def _values(schema: Schema) -> list[Any] | None:
    """Return the only values of a schema, if it lists them."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    listed: list[Any] | None = schema.get("enum")
    return listed


def _kinds(schema: dict[str, Any]) -> set[str]:
    """Return the types of a schema's values: all of them if it says nothing of types."""
    values = _values(schema)
    if values is not None:
        return {_kind_of(value) for value in values}
    types = list_types(
        schema.get("type", ["string", "number", "boolean", "null", "object", "array"])
    )
    return {"number" if name == "integer" else name for name in types}


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {
        str: "string",
        int: "number",
        float: "number",
        dict: "object",
        list: "array",
    }
    return names.get(type(value), "null")
