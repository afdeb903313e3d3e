"""Builds a tokenizer from SentencePiece's pieces: the byte-pair kind, as Llama 2 and Gemma have it.

SentencePiece merges the pair whose piece has the best score, the leftmost of equals. The backend
merges by the rank of pairs, so pairs are ranked by the score of what they make. User-defined pieces
are cut out of the text, spaces already changed, and are tokens without any merge; control pieces
are cut out of the text as it comes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from quire_engine.errors import ModelError

SPACE = "▁"
"""Stands for a space in pieces."""


class PieceKind(IntEnum):
    """What a piece is, as SentencePiece and GGML number it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: int
    """A `PieceKind`."""


def build_from_pieces(
    pieces: Sequence[Piece], *, adds_space: bool, origin: str
) -> tokenizers.Tokenizer:
    """Build a tokenizer; an id is a piece's place.

    Parameters
    ----------
    adds_space
        Whether a space is put before the text, and before text that follows a control piece.
    origin
        The file, for messages.

    Raises
    ------
    ModelError
        The pieces are not usable, such as when two are the same.
    """
    vocabulary = {_spell(piece): index for index, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise ModelError(f"{origin}: the tokenizer is damaged: two of its pieces are the same")
    whole = _texts(pieces, PieceKind.USER_DEFINED)
    unknown = next(iter(_texts(pieces, PieceKind.UNKNOWN)), None)
    model = models.BPE(
        vocab=vocabulary,
        merges=_rank_merges(pieces),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=any(piece.kind == PieceKind.BYTE for piece in pieces),
        ignore_merges=bool(whole),
    )
    tokenizer = tokenizers.Tokenizer(model)
    prefix = [normalizers.Prepend(SPACE)] if adds_space else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    if whole:
        tokenizer.pre_tokenizer = _cut_out(whole, unknown)
    strip = [decoders.Strip(" ", left=1, right=0)] if adds_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    control = _texts(pieces, PieceKind.CONTROL)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    return tokenizer


def _cut_out(whole: list[str], unknown: str | None) -> pre_tokenizers.PreTokenizer:
    """Isolate whole tokens, which are tokens as they are: text that spells a byte's must not be."""
    longest_first = sorted(whole, key=len, reverse=True)
    isolated = Regex("|".join(map(re.escape, longest_first)))
    spelled = "<(?=0x[0-9A-F]{2}>)"
    if unknown:
        spelled += f"|{re.escape(unknown[0])}(?={re.escape(unknown[1:])})"
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(isolated, behavior="isolated"),
            pre_tokenizers.Split(Regex(spelled), behavior="merged_with_previous"),
        ]
    )


def _spell(piece: Piece) -> str:
    """Return a piece as it comes out of the text; converters write spaces in user-defined ones."""
    is_whole = piece.kind == PieceKind.USER_DEFINED
    return piece.text.replace(" ", SPACE) if is_whole else piece.text


def _texts(pieces: Sequence[Piece], kind: PieceKind) -> list[str]:
    return [_spell(piece) for piece in pieces if piece.kind == kind]


def _rank_merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Return all pairs of pieces that make a piece, the best first."""
    normal = {
        piece.text: (-piece.score, index)
        for index, piece in enumerate(pieces)
        if piece.kind == PieceKind.NORMAL
    }
    ranked = []
    for text, rank in normal.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in normal and right in normal:
                ranked.append((rank, left, right))
    return [(left, right) for _, left, right in sorted(ranked)]
