"""Random schemas of the keywords that are heeded, and of some that contradict each other."""

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
_NAMES = ["a", "ab", "b", "name", 'quo"te', "é", "", "x]^-["]
_names = st.sampled_from(_NAMES)
_small = st.integers(0, 4)
_bounds = st.one_of(
    st.integers(-2000, 2000), st.decimals(-50, 50, places=2).map(float), st.integers(-3, 3)
)
_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-99, 99),
        st.floats(-9, 9).map(lambda x: round(x, 3)),
        st.text(max_size=4),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_names, inner, max_size=2),
    max_leaves=3,
)
_PATTERNS = [
    "^a+$", "[a-z]{2,4}", "^(foo|bar)$", "^\\d{3}-\\d{4}$", "a|b", "^[^x]{1,3}$", ".", "\\w+",
    '"\\\\',
]  # fmt: skip
_FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "uri"]


def _options(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries({}, optional=parts)


def _typed(name: str, options: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return options.map(lambda chosen: {"type": name, **chosen})


_leaves = st.one_of(
    st.sampled_from(["boolean", "null", "integer", "number", "string"]).map(lambda t: {"type": t}),
    _typed("string", _options(minLength=_small, maxLength=_small)),
    _typed("string", st.sampled_from(_PATTERNS).map(lambda p: {"pattern": p})),
    _typed("string", st.sampled_from(_FORMATS).map(lambda f: {"format": f})),
    _typed("integer", _options(minimum=_bounds, maximum=_bounds, exclusiveMaximum=_bounds)),
    _typed("integer", st.integers(1, 30).map(lambda m: {"multipleOf": m})),
    _typed("integer", _options(multipleOf=st.integers(1, 9), minimum=_bounds, maximum=_bounds)),
    _typed("number", _options(minimum=_bounds, exclusiveMinimum=_bounds, maximum=_bounds)),
    _typed("number", _options(exclusiveMinimum=_bounds, exclusiveMaximum=_bounds)),
    st.lists(_values, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    _values.map(lambda value: {"const": value}),
    st.just({"type": ["string", "null", "integer"]}),
    st.booleans(),
    st.just({}),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return _typed(
        "object",
        _options(
            properties=st.dictionaries(_names, inner, max_size=4),
            required=st.lists(_names, max_size=2),
            additionalProperties=inner,
            minProperties=st.integers(0, 1),
            maxProperties=_small,
        ),
    )


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return _typed(
        "array",
        _options(
            items=inner,
            prefixItems=st.lists(inner, min_size=1, max_size=2),
            minItems=_small,
            maxItems=_small,
        ),
    )


def _wrap(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        _objects(inner),
        _arrays(inner),
        several.map(lambda parts: {"anyOf": parts}),
        several.map(lambda parts: {"oneOf": parts}),
        several.map(lambda parts: {"allOf": parts}),
        st.tuples(inner, _leaves).map(lambda two: {"anyOf": [two[0]], "allOf": [two[1]]}),
        _objects(inner | st.just({"$ref": "#"})),
        inner.map(lambda part: {"$ref": "#/$defs/part", "$defs": {"part": part}}),
    )


_trees = st.recursive(_leaves, _wrap, max_leaves=6)


def _lead(schema: Any, root: str) -> Any:
    """Lead references to where their parts are: the root of all is not the root of a part."""
    if isinstance(schema, dict):
        moved = {key: _lead(part, f"{root}/{key}") for key, part in schema.items()}
        if moved.get("$ref") == "#/$defs/part":
            moved["$ref"] = f"#{root}/$defs/part"
        return moved
    if isinstance(schema, list):
        return [_lead(part, f"{root}/{index}") for index, part in enumerate(schema)]
    return schema


def _is_plain(schema: Any) -> bool:
    """Whether JSON pointers lead through its names as they are spelled here."""
    return isinstance(schema, dict)


schemas = _trees.filter(_is_plain).map(lambda schema: _lead(schema, ""))
