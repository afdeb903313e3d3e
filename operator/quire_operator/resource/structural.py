"""From the resource's types to the structural schema that a CRD needs.

A structural schema has no references and no nulls: each type is written out where it is used,
and a field that may be None is one that may be absent. Defaults stand on every field that has
one. An object that can be made of defaults alone has all of them as its own default: rules are
checked against that as it stands, before the fields' defaults are filled in.
"""

from typing import Any

from msgspec import NODEFAULT, Struct, inspect, to_builtins

from quire_engine.config.fields import documentation
from quire_operator.resource.base import Part
from quire_operator.resource.rules import RULES

Schema = dict[str, Any]

_Sized = inspect.StrType | inspect.VarTupleType | inspect.DictType
_NUMBER_BOUNDS = {"ge": "minimum", "le": "maximum"}


def schema_of(part: type[Part]) -> Schema:
    """The structural schema of one part, with everything below it."""
    return _struct(part)


def _struct(part: type[Part]) -> Schema:
    info = inspect.type_info(part)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"bug: {part} is not an object")
    texts = documentation(part)
    schema: Schema = {
        "type": "object",
        "description": _first_paragraph(part),
        "properties": {
            field.encode_name: _field(field, texts[field.name])
            for field in sorted(info.fields, key=lambda field: field.encode_name)
        },
    }
    if needed := sorted(field.encode_name for field in info.fields if field.required):
        schema["required"] = needed
    if part.rules:
        schema[RULES] = [rule.as_schema() for rule in part.rules]
    return schema


def _field(field: inspect.Field, text: str) -> Schema:
    schema = _type(field.type) | {"description": text}
    default = _default_of(field)
    if default == {}:
        below = schema.get("properties", {}).items()
        default = {name: one["default"] for name, one in below if "default" in one} or None
    return schema if default is None else schema | {"default": default}


def _default_of(field: inspect.Field) -> object:
    """A field's default; None stands for none, and for those that are as if absent."""
    if field.default_factory is not NODEFAULT:
        return to_builtins(field.default_factory()) or None
    if field.default is NODEFAULT or field.default in ((), ""):
        return None
    return {} if isinstance(field.default, Struct) else to_builtins(field.default)


def _type(found: inspect.Type) -> Schema:
    if isinstance(found, inspect.Metadata):
        return _annotated(found)
    if isinstance(found, inspect.UnionType):
        return _optional(found)
    if isinstance(found, inspect.StructType) and issubclass(found.cls, Part):
        return _struct(found.cls)
    if isinstance(found, inspect.VarTupleType):
        return {"type": "array", "items": _type(found.item_type)} | _sizes(found, "Items")
    if isinstance(found, inspect.DictType):
        values = {} if isinstance(found.value_type, inspect.AnyType) else _type(found.value_type)
        schema = {"type": "object"} | _sizes(found, "Properties")
        return schema | ({"additionalProperties": values} if values else {})
    if isinstance(found, inspect.LiteralType):
        is_text = all(isinstance(value, str) for value in found.values)
        return {"type": "string" if is_text else "integer", "enum": list(found.values)}
    return _scalar(found)


def _annotated(found: inspect.Metadata) -> Schema:
    extra = dict(found.extra_json_schema or {})
    if "x-kubernetes-int-or-string" in extra:
        return extra  # the only field of two types that a structural schema allows
    extra.pop("examples", None)
    return _type(found.type) | extra


def _optional(found: inspect.UnionType) -> Schema:
    kinds = [kind for kind in found.types if not isinstance(kind, inspect.NoneType)]
    if len(kinds) != 1:
        raise RuntimeError(f"bug: a field of the resource has one type, or may be absent: {found}")
    return _type(kinds[0])


def _scalar(found: inspect.Type) -> Schema:
    if isinstance(found, inspect.BoolType):
        return {"type": "boolean"}
    if isinstance(found, inspect.IntType):
        schema: Schema = {"type": "integer", "format": "int64"}
        for name, key in _NUMBER_BOUNDS.items():
            if (bound := getattr(found, name)) is not None:
                schema[key] = bound
        return schema
    if isinstance(found, inspect.StrType):
        pattern = {} if found.pattern is None else {"pattern": found.pattern}
        return {"type": "string"} | _sizes(found, "Length") | pattern
    raise RuntimeError(f"bug: the CRD has no schema for {found}")


def _sizes(found: _Sized, what: str) -> Schema:
    sizes = {f"min{what}": found.min_length, f"max{what}": found.max_length}
    return {name: size for name, size in sizes.items() if size is not None}


def _first_paragraph(part: type[Part]) -> str:
    return " ".join((part.__doc__ or "").split("\n\n")[0].split())
