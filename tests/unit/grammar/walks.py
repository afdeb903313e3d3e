"""Random texts of a grammar: what a model without any sense would write."""

import random
from functools import cache

from quire_engine.grammar.compiler import CompiledGrammar, Compiler
from quire_engine.grammar.matching import GrammarState
from quire_engine.grammar.writing import write_grammar
from quire_engine.protocol.grammar import (
    GrammarSpec,
    JsonSchemaGrammar,
    RegexGrammar,
    Vocabulary,
)

END = 256
_PIECES = [b'{"', b'":', b'",', b'"}', b'": "', b"\n  ", b"tr", b"nul", b"12", b"abc", b"\xc3\xa9"]
VOCABULARY = Vocabulary(
    tokens=(*(bytes([byte]) for byte in range(256)), b"", *_PIECES),
    width=300,
    end_token_ids=(END,),
)
"""Every byte, an end token, and some tokens of several bytes."""
_CLOSING = frozenset(b'"}],:')


@cache
def compiler() -> Compiler:
    """The compiler for `VOCABULARY`."""
    return Compiler(VOCABULARY)


def compile_spec(spec: GrammarSpec) -> CompiledGrammar:
    """Compile what a route might want."""
    return compiler().compile(write_grammar(spec))


def compile_schema(schema: object) -> CompiledGrammar:
    """Compile a schema."""
    return compile_spec(JsonSchemaGrammar(schema))  # type: ignore[arg-type]


def walk(compiled: CompiledGrammar, seed: int, *, most: int = 600) -> str | None:
    """Choose tokens at random until the grammar ends; None if it does not within so many."""
    chance = random.Random(seed)
    state = GrammarState(compiled, [END])
    written = b""
    for _ in range(most):
        if state.is_finished:
            return written.decode()
        permitted = state.permitted()
        assert permitted, f"nothing can follow {written!r}"
        closing = [token for token in permitted if token in _CLOSING or token == END]
        chosen = chance.choice(closing if closing and chance.random() < 0.4 else permitted)
        assert state.advance(chosen)
        if chosen == END:
            return written.decode()
        written += VOCABULARY.tokens[chosen]
    return None


def accepts(compiled: CompiledGrammar, text: str) -> bool:
    """Whether the grammar has exactly this text."""
    state = GrammarState(compiled, [END])
    return all(state.advance(byte) for byte in text.encode()) and (
        state.is_finished or END in state.permitted()
    )


def numbered_tokens(vocab_size: int, pattern: str) -> GrammarState:
    """Begin to follow an expression over tokens that are spelled <0>, <1> and so on."""
    tokens = tuple(f"<{token}>".encode() for token in range(vocab_size))
    vocabulary = Vocabulary(tokens=tokens, width=vocab_size, end_token_ids=())
    return GrammarState(Compiler(vocabulary).compile(write_grammar(RegexGrammar(pattern))), ())
