"""Compiles grammars for one vocabulary, and follows them token by token.

Nothing here is bounded in time: a grammar from a client is tried in a process that can be killed
before it comes to where it would hold up others.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quire_engine.grammar.binding import load_native
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.rules import ROOT
from quire_engine.protocol.grammar import Grammar, GrammarKind, Vocabulary

_RAW = 0
"""Tokens are given as the bytes that they stand for."""
Mask = NDArray[np.int32]
"""[ceil(vocab / 32)]: bit i % 32 of word i // 32 says whether token i may come."""


class CompiledGrammar:
    """A grammar and its masks; never changes, so that any number of matchers share it."""

    def __init__(self, native: Any, vocabulary: Vocabulary) -> None:  # noqa: ANN401 - native
        self._native = native
        self.vocabulary = vocabulary

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return int(self._native.memory_size_bytes())

    def matcher(self) -> Any:  # noqa: ANN401 - native
        """Begin to follow it."""
        return load_native().GrammarMatcher(self._native, None, False, -1, None)


class Compiler:
    """Compiles for one vocabulary.

    Parameters
    ----------
    vocabulary
        What each token stands for.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        native = load_native()
        self._vocabulary = vocabulary
        tokens = [*vocabulary.tokens, *[b""] * (vocabulary.width - len(vocabulary.tokens))]
        info = native.TokenizerInfo(
            tokens, _RAW, vocabulary.width, list(vocabulary.end_token_ids), False
        )
        self._compiler = native.GrammarCompiler(info, 1, False, -1, False)

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Compile a grammar; the GIL is released meanwhile.

        Raises
        ------
        SchemaError
            It is not a grammar.
        """
        try:
            if grammar.kind is GrammarKind.REGEX:
                native = self._compiler.compile_regex(grammar.text)
            else:
                native = self._compiler.compile_grammar_from_strings(grammar.text, ROOT)
        except RuntimeError as error:
            raise SchemaError(_shorten(str(error))) from None
        return CompiledGrammar(native, self._vocabulary)


def new_mask(vocabulary: Vocabulary) -> Mask:
    """Make room for a mask."""
    return np.zeros(-(-vocabulary.width // 32), np.int32)


def list_tokens(mask: Mask) -> NDArray[np.int64]:
    """Return the tokens of a mask."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))


def clear_tokens(mask: Mask, token_ids: Sequence[int]) -> None:
    """Take tokens out of a mask."""
    words = mask.view(np.uint32)
    for token_id in token_ids:
        words[token_id // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token_id % 32))


def _shorten(message: str) -> str:
    """Leave out where in the compiler's source it was said."""
    first = message.strip().splitlines()[0] if message.strip() else "not a grammar"
    head, separator, rest = first.partition(": ")
    return (rest if separator and ".cc:" in head else first)[:400]
