"""The keywords of JSON Schema that are heeded, and a walk that finds all others.

A keyword that cannot be heeded is refused: an answer that silently breaks what was asked is worse
than none. Annotations mean nothing to a value and are let pass.
"""

from collections.abc import Iterator
from typing import Any

from quire_engine.grammar.refusal import SchemaError

MAX_SCHEMA_NODES = 20_000
MAX_SCHEMA_DEPTH = 64
_MAX_LISTED = 20


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ANNOTATIONS = _words(
    "$comment $defs $schema contentEncoding contentMediaType default definitions deprecated"
    " description discriminator examples example readOnly title writeOnly"
)
"""`discriminator` is OpenAPI's, beside a `oneOf`."""
OF_TYPE = {
    "string": _words("minLength maxLength pattern format"),
    "number": _words("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
    "object": _words("properties required additionalProperties minProperties maxProperties"),
    "array": _words("items prefixItems additionalItems minItems maxItems uniqueItems"),
}
"""Keywords that say something of one type alone; those of numbers are those of integers."""
HEEDED = _words("$ref $id type enum const anyOf oneOf allOf").union(*OF_TYPE.values())
TYPES = _words("string number integer boolean null object array")

_COUNTS = _words("minLength maxLength minItems maxItems minProperties maxProperties")
_BOUNDS = OF_TYPE["number"]
_MAPS = _words("properties $defs definitions")
_LISTS = _words("anyOf oneOf allOf prefixItems")
_SINGLE = _words("additionalProperties additionalItems items")


def check_keywords(schema: object) -> None:
    """Refuse a schema with what cannot be heeded.

    Raises
    ------
    SchemaError
        It names all keywords at fault and where they stand, or the first value of a wrong kind.
    """
    unheeded: list[str] = []
    num_nodes = 0
    for place, node in _walk(schema, "", 0):
        num_nodes += 1
        if num_nodes > MAX_SCHEMA_NODES:
            raise SchemaError(f"the schema has more than {MAX_SCHEMA_NODES} parts")
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise SchemaError(f"{place or 'the schema'} must be an object or a boolean")
        for keyword, value in node.items():
            if keyword in HEEDED and (keyword != "$id" or not place):
                _check_value(f"{place}/{keyword}", keyword, value)
            elif keyword not in ANNOTATIONS and not keyword.startswith("x-"):
                unheeded.append(f"{place}/{keyword}")
    if unheeded:
        listed = ", ".join(unheeded[:_MAX_LISTED])
        more = f" and {len(unheeded) - _MAX_LISTED} more" if len(unheeded) > _MAX_LISTED else ""
        raise SchemaError(
            f"keywords that cannot be heeded: {listed}{more}; leave them out, or say it otherwise"
        )


def _walk(schema: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON
    """Yield every schema in a schema, and where it stands."""
    if depth > MAX_SCHEMA_DEPTH:
        raise SchemaError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    yield place, schema
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        at = f"{place}/{keyword}"
        if keyword in _MAPS and isinstance(value, dict):
            for name, part in value.items():
                yield from _walk(part, f"{at}/{name}", depth + 1)
        elif (keyword in _LISTS or keyword == "items") and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _walk(part, f"{at}/{index}", depth + 1)
        elif keyword in _SINGLE:
            yield from _walk(value, at, depth + 1)


def _check_value(place: str, keyword: str, value: object) -> None:
    problem = _find_problem(keyword, value)
    if problem is not None:
        raise SchemaError(f"{place}: {problem}")


def _find_problem(keyword: str, value: object) -> str | None:
    """Say what a keyword's value has to be, unless it is."""
    if keyword in _COUNTS:
        is_right = _is_number(value) and value >= 0 and value == int(value)  # type: ignore[operator, call-overload]
        return None if is_right else "must be a whole number from 0 on"
    if keyword in _BOUNDS:
        return None if _is_number(value) else "must be a number"
    if keyword in ("pattern", "format", "$ref", "$id"):
        return None if isinstance(value, str) else "must be a string"
    if keyword == "properties":
        return None if isinstance(value, dict) else "must be an object"
    if keyword == "uniqueItems":
        return None if isinstance(value, bool) else "must be a boolean"
    return _find_list_problem(keyword, value)


def _find_list_problem(keyword: str, value: object) -> str | None:
    if keyword == "type":
        types = value if isinstance(value, list) else [value]
        are_known = all(isinstance(one, str) and one in TYPES for one in types)
        return None if are_known and types else f"must be of {', '.join(sorted(TYPES))}"
    if keyword == "required":
        is_right = isinstance(value, list) and all(isinstance(name, str) for name in value)
        return None if is_right else "must be a list of strings"
    if keyword in _LISTS or keyword == "enum":
        return None if isinstance(value, list) and value else "must be a list that is not empty"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
