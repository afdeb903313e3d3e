"""What a body says of its answer's form: OpenAI's field, and vLLM's, old and new."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.protocol.grammar import (
    ChoiceGrammar,
    EbnfGrammar,
    GrammarSpec,
    JsonObjectGrammar,
    JsonSchemaGrammar,
    RegexGrammar,
)

JsonSchema = dict[str, Any] | bool
Choices = Annotated[list[str], Meta(min_length=1, max_length=4096)]


class JsonSchemaFormat(msgspec.Struct, kw_only=True):
    """A schema by which the answer is valid."""

    name: Annotated[str, Meta(max_length=256)] = ""
    """Accepted and not used."""
    description: str | None = None
    """Accepted and not used."""
    schema: JsonSchema | None = None
    """A JSON schema; without one, any JSON object."""
    strict: bool | None = None
    """Accepted and not used: the schema is always heeded to the letter."""


class ResponseFormat(msgspec.Struct, kw_only=True):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    """With the type "json_schema"."""

    def grammar_spec(self) -> GrammarSpec | None:
        """What the answer has to look like."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return JsonObjectGrammar()
        if self.json_schema is None:
            raise RequestError(
                'response_format: the type "json_schema" needs the field json_schema',
                parameter="response_format",
            )
        if self.json_schema.schema is None:
            return JsonObjectGrammar()
        return JsonSchemaGrammar(self.json_schema.schema)


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's way to ask for a form; exactly one of the first five."""

    json: str | JsonSchema | None = None
    """A JSON schema, or one written as a string."""
    regex: str | None = None
    """An expression that matches the whole answer."""
    choice: Choices | None = None
    """One of these texts."""
    grammar: str | None = None
    """Rules in EBNF, from the one named root."""
    json_object: bool | None = None
    """Any JSON object."""
    disable_any_whitespace: bool | None = False
    """Only false is supported."""
    disable_additional_properties: bool | None = False
    """Only false is supported: members that a schema doesn't name come only where it says so."""
    whitespace_pattern: str | None = None
    """Not supported."""
    structural_tag: Any = None
    """Not supported."""


def read_structured_outputs(wanted: StructuredOutputs) -> GrammarSpec | None:
    """Return what vLLM's field asks for.

    Raises
    ------
    RequestError
        More than one form is asked for, or what is not supported.
    """
    name = "structured_outputs"
    for option in ("disable_any_whitespace", "disable_additional_properties"):
        if getattr(wanted, option):
            raise _refuse(f"{name}.{option}: not supported; leave it out or set it to false", name)
    for option in ("whitespace_pattern", "structural_tag"):
        if getattr(wanted, option) is not None:
            raise _refuse(f"{name}.{option}: not supported; leave it out", name)
    return read_one_form(
        name,
        {
            f"{name}.json": wanted.json,
            f"{name}.regex": wanted.regex,
            f"{name}.choice": wanted.choice,
            f"{name}.grammar": wanted.grammar,
            f"{name}.json_object": wanted.json_object or None,
        },
    )


def read_one_form(parameter: str, forms: dict[str, Any]) -> GrammarSpec | None:
    """Return the one form that is given, of fields whose names end with its kind.

    Raises
    ------
    RequestError
        Two are given, or a schema that is written as a string is no JSON.
    """
    given = {name: value for name, value in forms.items() if value is not None}
    if len(given) > 1:
        raise _refuse(f"{', '.join(given)}: only one form at a time", parameter)
    for name, value in given.items():
        parameter = name.partition(".")[0]
        match name.rpartition(".")[2].removeprefix("guided_"):
            case "json":
                return JsonSchemaGrammar(_read_schema(value, parameter), parameter)
            case "regex":
                return RegexGrammar(value, parameter)
            case "choice":
                return ChoiceGrammar(tuple(value), parameter)
            case "grammar":
                return EbnfGrammar(value, parameter)
            case "json_object":
                return JsonObjectGrammar()
    return None


def _read_schema(value: str | JsonSchema, parameter: str) -> JsonSchema:
    if not isinstance(value, str):
        return value
    try:
        schema: JsonSchema = msgspec.json.decode(value, type=dict[str, Any] | bool)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refuse(f"{parameter}: the schema is not JSON: {error}", parameter) from None
    return schema


def _refuse(message: str, parameter: str) -> RequestError:
    return RequestError(message, parameter=parameter)
