"""Reads SentencePiece's `tokenizer.model`, a protocol buffer of few fields, without its libraries.

    ModelProto       1: pieces (repeated)   2: trainer_spec   3: normalizer_spec
    SentencePiece    1: piece, string       2: score, float   3: type, default normal
    TrainerSpec      3: model_type, 1 unigram (the default), 2 byte-pair
    NormalizerSpec   2: precompiled_charsmap, bytes   3: add_dummy_prefix
                     4: remove_extra_whitespaces

Format: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quire_engine.errors import ModelError
from quire_engine.tokenizing.sentencepiece import Piece, PieceKind

_BYTE_PAIR = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | bytes


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What a file says."""

    pieces: list[Piece]
    adds_space: bool
    """Whether a space is put before the text."""


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a file.

    Raises
    ------
    ModelError
        It is damaged, or asks for what is not supported: a unigram model, or text that is changed
        before it is cut up.
    """
    try:
        fields = list(_fields(path.read_bytes()))
        pieces = [_read_piece(value) for number, value in fields if number == 1]
        trainer = dict(_fields(_last_bytes(fields, 2)))
        normalizer = dict(_fields(_last_bytes(fields, 3)))
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    if not pieces:
        raise ModelError(f"{path.name} is damaged: it has no pieces")
    if trainer.get(3, 1) != _BYTE_PAIR:
        raise ModelError(
            f"{path.name} is a SentencePiece model that is no byte-pair one, which is not "
            "supported: convert it to tokenizer.json with transformers' AutoTokenizer"
        )
    if normalizer.get(2) or normalizer.get(4, 1):
        raise ModelError(
            f"{path.name} asks for text to be normalized, which is not supported: convert it to "
            "tokenizer.json with transformers' AutoTokenizer"
        )
    return SentencePieceModel(pieces, bool(normalizer.get(3, 1)))


def _read_piece(message: Value) -> Piece:
    fields = dict(_fields(_as_bytes(message)))
    (score,) = struct.unpack("<f", _as_bytes(fields.get(2, bytes(4))))
    kind = fields.get(3, PieceKind.NORMAL)
    if not isinstance(kind, int):
        raise ValueError("a piece's type is no number")  # noqa: TRY004 - the file's fault
    return Piece(_as_bytes(fields.get(1, b"")).decode(), score, kind)


def _last_bytes(fields: list[tuple[int, Value]], number: int) -> bytes:
    return next((_as_bytes(value) for n, value in reversed(fields) if n == number), b"")


def _as_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number is where a text must be")  # noqa: TRY004 - the file's fault
    return value


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield numbers and values; those of fixed size come as bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _varint(message, position)
            yield key >> 3, number
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, position = _varint(message, position)
        if size is None or position + size > len(message):
            raise ValueError(f"it is damaged or truncated at byte {position}")
        yield key >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f"it is damaged at byte {position}")
