"""Two schemas as one that both are: for `allOf`, and for what stands beside a `$ref` or an `anyOf`.

What cannot be put into one keyword is refused rather than dropped.
"""

from collections.abc import Callable
from typing import Any

from quire_engine.grammar.keywords import ANNOTATIONS, OF_TYPE
from quire_engine.grammar.refusal import SchemaError

Schema = dict[str, Any] | bool
_LARGER = frozenset(["minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"])
_SMALLER = frozenset(["maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"])
_APART = frozenset(
    ["properties", "additionalProperties", "items", "prefixItems", "additionalItems"]
)


def merge(left: Schema, right: Schema) -> Schema:
    """Return a schema of the values that both permit.

    Parts are merged lazily: where both say something of a property, it has an `allOf` of the two.

    Raises
    ------
    SchemaError
        It cannot be said with keywords that are heeded.
    """
    if left is False or right is False:
        return False
    if left is True:
        return right
    if right is True:
        return left
    merged: dict[str, Any] = {}
    for keyword in {**left, **right}:
        if keyword in ANNOTATIONS or keyword in _APART:
            continue
        if keyword in left and keyword in right:
            merged[keyword] = _merge_values(keyword, left[keyword], right[keyword])
        else:
            merged[keyword] = left[keyword] if keyword in left else right[keyword]
    _merge_objects(merged, left, right)
    _merge_arrays(merged, left, right)
    return merged


def _merge_values(keyword: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - JSON
    if is_same(left, right):
        return left
    for keywords, choose in ((_LARGER, max), (_SMALLER, min)):
        if keyword in keywords:
            return choose(left, right)
    merges: dict[str, Callable[[Any, Any], Any]] = {
        "type": _common_types,
        "required": lambda a, b: list(dict.fromkeys([*a, *b])),
        "enum": lambda a, b: [value for value in a if any(is_same(value, o) for o in b)],
        "allOf": lambda a, b: [*a, *b],
        "uniqueItems": lambda a, b: a or b,
    }
    if keyword not in merges:
        raise SchemaError(f"two different values of {keyword} cannot be heeded at once")
    return merges[keyword](left, right)


def _common_types(left: str | list[str], right: str | list[str]) -> list[str]:
    """Types that both permit; whole numbers are numbers."""
    one, other = list_types(left), list_types(right)
    common = [name for name in one if name in other]
    if "integer" not in common and {"integer", "number"} <= {*one, *other}:
        common.append("integer")
    return common


def list_types(types: str | list[str]) -> list[str]:
    """One type as a list, and several as they are."""
    return [types] if isinstance(types, str) else list(types)


def _merge_objects(merged: dict[str, Any], left: dict[str, Any], right: dict[str, Any]) -> None:
    if not any(keyword in side for keyword in _APART for side in (left, right)):
        return
    names = {**left.get("properties", {}), **right.get("properties", {})}
    if names:
        merged["properties"] = {
            name: _both(_property(left, name), _property(right, name)) for name in names
        }
    word = "additionalProperties"
    rest = [side[word] for side in (left, right) if word in side]
    if rest:
        merged[word] = rest[0] if len(rest) == 1 else _both(*rest)


def _property(side: dict[str, Any], name: str) -> Schema:
    found: Schema = side.get("properties", {}).get(name, side.get("additionalProperties", True))
    return found


def _merge_arrays(merged: dict[str, Any], left: dict[str, Any], right: dict[str, Any]) -> None:
    own = [
        {k: v for k, v in side.items() if k in OF_TYPE["array"] & _APART} for side in (left, right)
    ]
    if all(own) and any(side.keys() != {"items"} for side in own):
        raise SchemaError("two different forms of an array's items cannot be heeded at once")
    if all(own):
        merged["items"] = _both(own[0]["items"], own[1]["items"])
    else:
        merged.update(own[0] or own[1])


def _both(left: Schema, right: Schema) -> Schema:
    if left is True or left == right:
        return right
    if right is True:
        return left
    if left is False or right is False:
        return False
    return {"allOf": [left, right]}


def is_same(left: object, right: object) -> bool:
    """Whether two JSON values are the same: 1 is 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[k], right[k]) for k in left)
    return left == right
