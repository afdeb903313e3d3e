"""From what a route wants to a grammar's text."""

import msgspec

from quire_engine.grammar.expressions import check_expression
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.rules import ROOT, Ref, Rules, literal
from quire_engine.grammar.schema import SchemaWriter
from quire_engine.protocol.grammar import (
    CallOrJsonGrammar,
    ChoiceGrammar,
    EbnfGrammar,
    Grammar,
    GrammarKind,
    GrammarSpec,
    JsonObjectGrammar,
    JsonSchemaGrammar,
    RegexGrammar,
    TaggedGrammar,
)

MAX_GRAMMAR_BYTES = 1 << 20
"""Of the text that is compiled; a schema of thousands of properties makes less."""


def write_grammar(spec: GrammarSpec) -> Grammar:
    """Write the grammar of what is wanted, not yet compiled.

    Raises
    ------
    SchemaError
        It cannot be heeded, or nothing satisfies it.
    """
    try:
        return _write(spec)
    except RecursionError:
        raise SchemaError("the schema is nested too deep, or leads in a circle") from None


def _write(spec: GrammarSpec) -> Grammar:
    match spec:
        case EbnfGrammar():
            return _bounded(GrammarKind.EBNF, spec.text)
        case RegexGrammar():
            return _bounded(GrammarKind.REGEX, check_expression(spec.pattern))
        case ChoiceGrammar():
            choices = " | ".join(literal(choice) for choice in dict.fromkeys(spec.choices))
            return _bounded(GrammarKind.EBNF, f"{ROOT} ::= {choices}\n")
        case TaggedGrammar():
            rules = Rules()
            return _finish(rules, _write_tags(rules, spec))
        case CallOrJsonGrammar():
            rules = Rules()
            calls, content = _write_tags(rules, spec.calls), _write_json(rules, spec.content)
            return _finish(rules, rules.add("either", (calls,), (content,)))
        case JsonObjectGrammar() | JsonSchemaGrammar():
            rules = Rules()
            return _finish(rules, _write_json(rules, spec))


def name_parameter(spec: GrammarSpec) -> str:
    """Return the body's field that asked for it."""
    return "response_format" if isinstance(spec, JsonObjectGrammar) else spec.parameter


def encode_spec(spec: GrammarSpec) -> bytes:
    """Write it for a process that compiles; equal bytes are equal grammars."""
    return msgspec.msgpack.encode(spec)


def decode_spec(data: bytes) -> GrammarSpec:
    """Read what `encode_spec` wrote."""
    spec: GrammarSpec = msgspec.msgpack.decode(data, type=GrammarSpec)
    return spec


def _write_json(rules: Rules, spec: JsonObjectGrammar | JsonSchemaGrammar) -> Ref:
    schema = {"type": "object"} if isinstance(spec, JsonObjectGrammar) else spec.schema
    return SchemaWriter(schema, rules).write()


def _write_tags(rules: Rules, spec: TaggedGrammar) -> Ref:
    one = rules.add(
        "tag",
        *[
            (literal(tag.begin), SchemaWriter(tag.schema, rules).write(), literal(tag.end))
            for tag in spec.tags
        ],
    )
    if spec.is_single:
        return one
    more = rules.reserve("tags")
    return rules.define(more, [(one,), (one, literal(spec.separator), more)])


def _finish(rules: Rules, root: Ref) -> Grammar:
    text = rules.write(root)
    if text is None:
        raise SchemaError("no value is valid by this schema: it contradicts itself")
    return _bounded(GrammarKind.EBNF, text)


def _bounded(kind: GrammarKind, text: str) -> Grammar:
    if len(text.encode()) > MAX_GRAMMAR_BYTES:
        raise SchemaError(f"the grammar is larger than {MAX_GRAMMAR_BYTES} bytes")
    return Grammar(kind, text)
