"""The bytes that a single token stands for, which need not be whole characters.

Decoders of tokenizers work on sequences: of one token with half a character they make U+FFFD, and
some take the space off a first word. Scores are given token by token, and clients join the bytes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache

import tokenizers

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"


class Spelling:
    """Spells the tokens of one vocabulary.

    Byte-level vocabularies write each byte as a visible character, those with byte fallback write
    single bytes as <0xNN>; both may write a space as U+2581.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._added = {
            token_id: token.content
            for token_id, token in backend.get_added_tokens_decoder().items()
        }
        kinds = set(_decoder_kinds(_decoder_state(backend)))
        self._is_byte_level = "ByteLevel" in kinds
        self._has_byte_fallback = "ByteFallback" in kinds

    def bytes_of(self, token_id: int) -> bytes:
        """Return a token's bytes; none for an id that the vocabulary doesn't have."""
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self._backend.id_to_token(token_id)
        if piece is None:
            return b""
        if self._is_byte_level:
            return _bytes_of_characters(piece)
        byte = _BYTE.fullmatch(piece) if self._has_byte_fallback else None
        if byte is not None:
            return bytes.fromhex(byte[1])
        return piece.replace(_SPACE, " ").encode()

    def text_of(self, token_id: int) -> str:
        """Return a token as text; bytes that are no UTF-8 become U+FFFD."""
        return self.bytes_of(token_id).decode(errors="replace")


def _decoder_state(backend: tokenizers.Tokenizer) -> object:
    decoder = backend.decoder
    return None if decoder is None else json.loads(decoder.__getstate__())


def _decoder_kinds(state: object) -> Iterator[str]:
    if isinstance(state, Mapping):
        yield str(state.get("type"))
        for part in state.get("decoders", ()):
            yield from _decoder_kinds(part)


def _bytes_of_characters(piece: str) -> bytes:
    """Undo GPT-2's spelling; what it has no character for is taken as text."""
    table = _byte_of_character()
    return b"".join(
        bytes([table[character]]) if character in table else character.encode()
        for character in piece
    )


@cache
def _byte_of_character() -> dict[str, int]:
    """Characters that stand for bytes: visible ones for themselves, others from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    return table | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}
