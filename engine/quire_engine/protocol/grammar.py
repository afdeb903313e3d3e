"""What an answer has to look like: grammars, as the routes want them and as the core takes them.

    route: a GrammarSpec ──► Grammars.prepare ──► a Grammar ──► AddRequest.grammar ──► core
                             (checked and compiled              (compiled once more, and
                             once, in a process of its          cached by content)
                             own: else 400)

A route says what it wants with a `GrammarSpec`, and needs to know nothing else: what compiles it,
and what of a schema can be heeded, is known to `quire_engine.grammar` alone. A body says it by
`GenerationParameters.grammar_spec`, which a request with other ways to ask for a form overrides: a
forced call of a tool is a `TaggedGrammar` whose tags begin with the call's opening up to the
arguments, which follow the tool's schema, and end with its closing.

Of such a request every generated token, from the first on, is one that the grammar permits; an end
token only where it may end. Where nothing can follow, the answer ends with "stop", without an end
token; an answer that max_tokens or a stop text cuts is not whole, and its finish reason says so.
Texts are matched as the tokens spell them; a model's control tokens are never permitted. Grammars
go with all other parameters but allowed_token_ids and bad_words, which could leave no token at all,
and with n > 1; sequences made otherwise (beams) are to be refused.
"""

import hashlib
from enum import StrEnum
from typing import Any

import msgspec


class JsonObjectGrammar(msgspec.Struct, frozen=True, tag="json_object"):
    """Any JSON object."""


class JsonSchemaGrammar(msgspec.Struct, frozen=True, tag="json_schema"):
    """A JSON value that is valid by a schema."""

    schema: dict[str, Any] | bool
    parameter: str = "response_format"
    """The field of the body that a refusal names."""


class RegexGrammar(msgspec.Struct, frozen=True, tag="regex"):
    """A text that a regular expression matches as a whole."""

    pattern: str
    parameter: str = "structured_outputs"


class ChoiceGrammar(msgspec.Struct, frozen=True, tag="choice"):
    """One of several texts."""

    choices: tuple[str, ...]
    parameter: str = "structured_outputs"


class EbnfGrammar(msgspec.Struct, frozen=True, tag="ebnf"):
    """A text by rules in GBNF, from the one named root."""

    text: str
    parameter: str = "structured_outputs"


class GrammarTag(msgspec.Struct, frozen=True):
    """A JSON value between two fixed texts."""

    begin: str
    schema: dict[str, Any] | bool
    end: str


class TaggedGrammar(msgspec.Struct, frozen=True, tag="tagged"):
    """One of the tags, or several with a fixed text between them; nothing before or after."""

    tags: tuple[GrammarTag, ...]
    separator: str = ""
    is_single: bool = True
    """Exactly one rather than one or more."""
    parameter: str = "tools"


class CallOrJsonGrammar(msgspec.Struct, frozen=True, tag="call_or_json"):
    """What either of two grammars permits: calls of tools, or an answer of the form asked for."""

    calls: TaggedGrammar
    content: JsonSchemaGrammar | JsonObjectGrammar
    parameter: str = "response_format"


GrammarSpec = (
    JsonObjectGrammar
    | JsonSchemaGrammar
    | RegexGrammar
    | ChoiceGrammar
    | EbnfGrammar
    | TaggedGrammar
    | CallOrJsonGrammar
)


class GrammarKind(StrEnum):
    """The languages that grammars are compiled from."""

    REGEX = "regex"
    EBNF = "ebnf"


class Grammar(msgspec.Struct, frozen=True):
    """A grammar that is known to compile: equal ones are compiled once."""

    kind: GrammarKind
    text: str

    @property
    def key(self) -> str:
        """Names its content."""
        return hashlib.sha256(f"{self.kind}\0{self.text}".encode()).hexdigest()


class Vocabulary(msgspec.Struct, frozen=True):
    """What each token of a model stands for."""

    tokens: tuple[bytes, ...]
    """By id; empty for control tokens, which no grammar permits."""
    width: int
    """Tokens that the model scores: at least as many, the rest stands for nothing."""
    end_token_ids: tuple[int, ...]
    """Tokens that end an answer."""
