"""Whether an object is right, by the CRD's own schema and rules: what `kubectl apply` would say.

Types, ranges and patterns are checked by the types that the schema is made from. Here is what an
API server does besides: unknown fields are named, lists with keys have each once, defaults are
filled in, and then the rules (CEL) are asked.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from quire_operator.resource.crd import crd
from quire_operator.resource.rules import RULES

Schema = Mapping[str, Any]

_LIMIT_OF_INTEGERS = 2.0**63
_MULTIPLES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_MULTIPLES |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}


def find_problems(body: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with a resource, each with its field and what to do.

    Parameters
    ----------
    body
        Its types have been checked: see `quire_operator.resource.reading`.
    old
        What it replaces, if anything: some rules are about a change.
    """
    schema = _schema()
    now = _complete(body, schema)
    before = None if old is None else _complete(old, schema)
    return list(_broken_rules(now, before, schema, ""))


def find_unknown(body: Mapping[str, Any]) -> list[str]:
    """Fields that there are not, and keys that a list has twice."""
    return list(_unknown(body, _schema(), ""))


@cache
def _schema() -> Schema:
    schema: Schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _unknown(value: object, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and "properties" in schema:
        known = schema["properties"]
        for name, one in value.items():
            if name not in known:
                close = get_close_matches(str(name), known, n=1)
                hint = f": did you mean {close[0]}?" if close else ""
                yield f'unknown field "{_join(path, name)}"{hint}'
            else:
                yield from _unknown(one, known[name], _join(path, name))
    elif isinstance(value, Mapping) and isinstance(schema.get("additionalProperties"), Mapping):
        for name, one in value.items():
            yield from _unknown(one, schema["additionalProperties"], _join(path, name))
    elif isinstance(value, list) and "items" in schema:
        yield from _twice(value, schema, path)
        for index, one in enumerate(value):
            yield from _unknown(one, schema["items"], f"{path}[{index}]")


def _twice(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    """Items of a set or of a list with keys that are there already."""
    names = schema.get("x-kubernetes-list-map-keys", [])
    if schema.get("x-kubernetes-list-type") not in ("set", "map"):
        return
    seen: list[object] = []
    for index, one in enumerate(value):
        key = [one.get(name) for name in names] if isinstance(one, Mapping) else one
        if key in seen:
            shown = ", ".join(map(str, key)) if isinstance(key, list) else key
            yield f"{path}[{index}]: Duplicate value: {shown}"
        seen.append(key)


def _complete(value: Any, schema: Schema) -> Any:  # noqa: ANN401 - any part of a document
    """With the schema's defaults where nothing is given; a null counts as nothing."""
    if isinstance(value, Mapping):
        return _complete_object(value, schema)
    if isinstance(value, list):
        return [_complete(one, schema.get("items", {})) for one in value]
    return value


def _complete_object(value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    known: Mapping[str, Schema] = schema.get("properties", {})
    defaults = {name: one["default"] for name, one in known.items() if "default" in one}
    merged = defaults | {name: one for name, one in value.items() if one is not None}
    below = schema.get("additionalProperties")
    other: Schema = below if isinstance(below, Mapping) else {}
    return {name: _complete(one, known.get(name, other)) for name, one in merged.items()}


def _broken_rules(now: object, before: object, schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get(RULES, []):
        if not _holds(rule["rule"], now, before):
            field = _join(path, rule.get("fieldPath", "").lstrip("."))
            yield f"{field}: {rule['message']}" if field else rule["message"]
    for name, below, one, old in _parts(now, before, schema):
        yield from _broken_rules(one, old, below, f"{path}{name}" if path else name.lstrip("."))


def _parts(
    now: object, before: object, schema: Schema
) -> Iterator[tuple[str, Schema, object, object]]:
    """What an object or a list consists of: path, schema, value, and the value it replaces."""
    if isinstance(now, Mapping):
        old = before if isinstance(before, Mapping) else {}
        for name, one in now.items():
            below = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(below, Mapping):
                yield f".{name}", below, one, old.get(name)
    elif isinstance(now, list):
        keys = schema.get("x-kubernetes-list-map-keys", [])
        olds = before if isinstance(before, list) and keys else []
        for index, one in enumerate(now):
            same = (old for old in olds if all(old.get(k) == one.get(k) for k in keys))
            yield f"[{index}]", schema["items"], one, next(same, None)


def _holds(rule: str, now: object, before: object) -> bool:
    """Whether a rule holds; one about a change holds where nothing was before.

    Raises
    ------
    RuntimeError
        It could not be asked: rules are quire's own, and objects are of the right types.
    """
    if "oldSelf" in rule and before is None:
        return True
    result = _program(rule).eval(data={"self": now, "oldSelf": before})
    if result.type() != cel.Type.BOOL:
        raise RuntimeError(f"bug: the rule {rule!r} has no answer: {result.value()}")
    return bool(result.value())


@cache
def _program(rule: str) -> cel.Expression:
    return _environment().compile(rule)


@cache
def _environment() -> cel.Env:
    """CEL as an API server has it: functions for texts, `sum` of lists, amounts of resources."""
    add = cel.Overload(
        "list_sum",
        return_type=cel.Type.INT,
        parameters=[cel.Type.List(cel.Type.DYN)],
        is_member=True,
        impl=lambda several: sum(map(_plain, several)),
    )
    quantity = cel.Overload(
        "string_quantity",
        return_type=cel.Type.DOUBLE,
        parameters=[cel.Type.STRING],
        is_member=False,
        impl=lambda text: _amount(_plain(text)),
    )
    compare = cel.Overload(
        "quantity_compare",
        return_type=cel.Type.INT,
        parameters=[cel.Type.DOUBLE, cel.Type.DOUBLE],
        is_member=True,
        impl=lambda one, other: (_plain(one) > _plain(other)) - (_plain(one) < _plain(other)),
    )
    is_integer = cel.Overload(
        "quantity_is_integer",
        return_type=cel.Type.BOOL,
        parameters=[cel.Type.DOUBLE],
        is_member=True,
        impl=lambda one: _plain(one).is_integer() and abs(_plain(one)) < _LIMIT_OF_INTEGERS,
    )
    return cel.NewEnv(
        variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN},
        extensions=[ext_strings.ExtStrings()],
        functions=[
            cel.FunctionDecl("sum", [add]),
            cel.FunctionDecl("quantity", [quantity]),
            cel.FunctionDecl("compareTo", [compare]),
            cel.FunctionDecl("isInteger", [is_integer]),
        ],
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - Python's own value of CEL's
    return value.value() if hasattr(value, "value") else value


def _amount(text: str) -> float:
    """How much a text such as 500m or 16Gi is; its form has been checked."""
    number = text.rstrip("mkKMGTPi")
    return float(number) * _MULTIPLES[text.removeprefix(number)]


def _join(path: str, name: object) -> str:
    return ".".join(filter(None, (path, str(name))))
