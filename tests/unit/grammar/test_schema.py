"""Schemas: whatever is written by their grammars is valid, and what cannot be heeded is refused."""

import json
from datetime import datetime
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.writing import write_grammar
from quire_engine.protocol.grammar import JsonSchemaGrammar
from quire_engine.server.grammar_process import follow
from tests.unit.grammar.schemas import schemas
from tests.unit.grammar.walks import accepts, compile_schema, walk

_VALIDATOR = jsonschema.Draft202012Validator


def refusal(schema: Any) -> str:
    with pytest.raises(SchemaError) as caught:
        write_grammar(JsonSchemaGrammar(schema))
    return str(caught.value)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas, st.integers(0, 2**32))
def test_whatever_is_written_by_a_random_schema_is_valid(schema: Any, seed: int) -> None:
    try:
        compiled = compile_schema(schema)
        follow(compiled)
    except SchemaError:
        assume(False)  # it says so: nothing else is claimed
    validator = _VALIDATOR(schema, format_checker=_VALIDATOR.FORMAT_CHECKER)
    for number in range(3):
        text = walk(compiled, seed + number)
        if text is not None:
            validator.validate(json.loads(text))


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "string"}, ['""', '"a\\n\\u00e9"', '"é€😀"'], ['"', '"\\ud800"', '"\\x"', "a"]),
        ({"type": "integer"}, ["0", "-7", "12"], ["01", "1.5", "1e3", "-"]),
        ({"type": "number"}, ["0.5", "-1e-3"], [".5", "1.", "NaN", "+1"]),
        ({"type": "number", "minimum": 0, "maximum": 1}, ["0", "1", "0.25"], ["1.1", "-0.1", "2"]),
        ({"type": "integer", "exclusiveMinimum": 3}, ["4", "1234"], ["3", "-9"]),
        ({"type": "integer", "multipleOf": 7}, ["0", "-14", "777"], ["1", "-8"]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ['"é"', '"ab"'], ['""', '"abc"']),
        ({"type": "string", "pattern": "^[A-Z]{2}$"}, ['"AB"'], ['"A"', '"ABC"', '"ab"']),
        ({"enum": ["a", 1, None]}, ['"a"', "1", "null"], ['"b"', "true"]),
        ({"type": ["null", "boolean"]}, ["null", "true"], ["0"]),
        ({"properties": {"a": {"const": 1}}, "required": ["a"]}, ['{"a":1}'], ["{}", "1"]),
        (
            {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}},
            ["{}", '{"a": null}', '{"b":null}', '{\n  "a": null,\n  "b": null\n}'],
            ['{"b":null,"a":null}', '{"c":null}', '{"a":null,}', '{"a":null "b":null}'],
        ),
        (
            {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}},
            ['{"a":1}', '{"a":1,"b":2}', '{"a":1, "ab": 2}'],
            ["{}", '{"a":1,"a":2}', '{"a":1,"b":"c"}'],
        ),
        ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            ["[1]", "[1,2]", "[ 1, 2 ]"],
            ["[]", "[1,2,3]", '["a"]'],
        ),
        (
            {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False},
            ["[]", "[1]", "[1, 2]"],
            ["[2]", "[1,2,3]"],
        ),
        ({"allOf": [{"type": "number"}, {"minimum": 2}, {"maximum": 3}]}, ["2.5"], ["1", "4"]),
        (
            {
                "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}},
                "$ref": "#/$defs/node",
            },
            ["{}", '{"next":{"next":{}}}'],
            ['{"next":1}'],
        ),
        (
            {
                "oneOf": [
                    {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                    {"properties": {"kind": {"const": "b"}}, "required": ["kind"]},
                ],
                "type": "object",
            },
            ['{"kind":"a"}', '{"kind":"b"}'],
            ['{"kind":"c"}', "{}"],
        ),
        ({}, ["1", '{"a":[true,null]}', "[]"], ["nil"]),
    ],
)
def test_a_schema_has_what_it_says(schema: Any, right: list[str], wrong: list[str]) -> None:
    compiled = compile_schema(schema)
    assert [text for text in right if not accepts(compiled, text)] == []
    assert [text for text in wrong if accepts(compiled, text)] == []


PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": -5, "maximum": 300},
        "tags": {"type": "array", "items": {"enum": ["a", 1, None]}, "maxItems": 3},
        "is_here": {"type": ["boolean", "null"]},
    },
    "required": ["name", "age", "tags", "is_here"],
    "additionalProperties": False,
}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(
        {
            "name": st.text(),
            "age": st.integers(-5, 300),
            "tags": st.lists(st.sampled_from(["a", 1, None]), max_size=3),
            "is_here": st.none() | st.booleans(),
        }
    )
)
def test_plain_json_of_a_common_schema_can_be_written(value: Any) -> None:
    ordered = {name: value[name] for name in PERSON["properties"]}
    text = json.dumps(ordered, ensure_ascii=False)
    assume("\x7f" not in text)  # which is never written as it is
    assert accepts(compile_schema(PERSON), text)


@pytest.mark.parametrize("name", ["date", "time", "date-time"])
@pytest.mark.parametrize("seed", range(10))
def test_times_are_times(name: str, seed: int) -> None:
    text = walk(compile_schema({"type": "string", "format": name}), seed)
    assert text is not None
    written = json.loads(text)
    datetime.fromisoformat(f"2024-01-01T{written}" if name == "time" else written)


KEYWORDS = (
    "$anchor $dynamicAnchor $dynamicRef $recursiveRef contains contentSchema dependencies"
    " dependentRequired dependentSchemas else if maxContains minContains not nullable"
    " patternProperties propertyNames then unevaluatedItems unevaluatedProperties madeUp"
)


@pytest.mark.parametrize("keyword", KEYWORDS.split(" "))
def test_a_keyword_that_cannot_be_heeded_is_named_with_its_place(keyword: str) -> None:
    schema = {"type": "object", "properties": {"a": {"items": {keyword: {}}}}}
    assert f"/properties/a/items/{keyword}" in refusal(schema)


def test_all_keywords_at_fault_are_named_at_once() -> None:
    said = refusal({"not": {}, "properties": {"x": {"if": {}, "title": "fine"}}})
    assert "/not" in said
    assert "/properties/x/if" in said
    assert "title" not in said


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "integer", "minimum": 3, "maximum": 2}, "contradicts itself"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "contradicts itself"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "contradicts itself"),
        (
            {"type": "array", "prefixItems": [{}], "items": {}, "minItems": 4, "maxItems": 3},
            "contradicts itself",
        ),
        (False, "contradicts itself"),
        ({"type": "string", "enum": [1, 2]}, "contradicts itself"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "contradicts itself"),
        ({"$ref": "#"}, "contradicts itself"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "contradicts itself"),
        ({"$ref": "https://example.com/schema"}, "only references into the same schema"),
        ({"$ref": "other.json#/a"}, "only references into the same schema"),
        ({"$ref": "#/$defs/missing"}, "leads nowhere"),
        ({"$ref": "#/default", "default": {"not": {}}}, "/not"),
        ({"allOf": [{"$ref": "#"}]}, "in a circle"),
        ({"type": "text"}, "/type: must be"),
        ({"type": "string", "minLength": -1}, "/minLength: must be"),
        ({"type": "string", "maxLength": 2**40}, "at most"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "only one is heeded"),
        ({"type": "string", "pattern": "(?=a)b"}, "(?=a"),
        ({"type": "string", "pattern": "(a"}, "not a regular expression"),
        ({"type": "string", "format": "iri"}, "those that can"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "number", "multipleOf": 0.1}, "multipleOf"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "use anyOf"),
        ({"type": "object", "minProperties": 2}, "minProperties"),
        ({"items": 3}, "/items must be"),
        ({"properties": {"a": {"$id": "x"}}}, "/properties/a/$id"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum: must be a number"),
    ],
)
def test_what_cannot_be_heeded_is_refused(schema: Any, reason: str) -> None:
    assert reason in refusal(schema)


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"items": schema}
    assert "deeper than" in refusal(schema)


def test_a_schema_that_is_too_large_is_refused() -> None:
    assert "more than" in refusal({"anyOf": [{"const": number} for number in range(30_000)]})


def test_references_that_multiply_are_refused() -> None:
    definitions = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 10} for level in range(9)
    }
    assert "too many others" in refusal({"$defs": {**definitions, "d9": {}}, "$ref": "#/$defs/d0"})
