"""A folder's `tokenizer.model` together with what its tokenizer_config.json adds to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from quire_engine.errors import ModelError
from quire_engine.tokenizing.sentencepiece import Piece, PieceKind, build_from_pieces
from quire_engine.tokenizing.sentencepiece_file import read_sentencepiece


def load_sentencepiece(path: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Load a SentencePiece file.

    Parameters
    ----------
    settings
        Of tokenizer_config.json: `added_tokens_decoder` names more whole tokens, `add_bos_token`
        whether texts begin with BOS, which Llama's and Gemma's do unless it says no.

    Raises
    ------
    ModelError
        The file is damaged or not supported, or added tokens leave ids without a token.
    """
    model = read_sentencepiece(path)
    pieces = _with_added(model.pieces, settings.get("added_tokens_decoder") or {}, path.name)
    backend = build_from_pieces(pieces, adds_space=model.adds_space, origin=path.name)
    if settings.get("add_bos_token", True):
        _begin_with_bos(backend, pieces, settings.get("bos_token"))
    return backend


def _with_added(pieces: list[Piece], added: Any, origin: str) -> list[Piece]:  # noqa: ANN401
    """Put the added tokens at their ids, over pieces that are there."""
    pieces = list(pieces)
    try:
        for number, token in sorted((int(key), token) for key, token in added.items()):
            is_unknown = number < len(pieces) and pieces[number].kind == PieceKind.UNKNOWN
            kind = PieceKind.CONTROL if token.get("special") else PieceKind.USER_DEFINED
            pieces[number : number + 1] = [
                Piece(str(token["content"]), 0.0, PieceKind.UNKNOWN if is_unknown else kind)
            ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"added_tokens_decoder of tokenizer_config.json is damaged: {error!r}"
        ) from error
    largest = max(map(int, added), default=0)
    if largest >= len(pieces):
        raise ModelError(
            f"added_tokens_decoder of tokenizer_config.json has a token {largest}, but with "
            f"{origin} there are only {len(pieces)}"
        )
    return pieces


def _begin_with_bos(
    backend: tokenizers.Tokenizer,
    pieces: list[Piece],
    named: Any,  # noqa: ANN401 - text, or a table with it
) -> None:
    text = named.get("content") if isinstance(named, dict) else named
    if text is None:
        controls = [piece.text for piece in pieces if piece.kind == PieceKind.CONTROL]
        text = next((name for name in ("<s>", "<bos>") if name in controls), None)
    token_id = None if text is None else backend.token_to_id(str(text))
    if token_id is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, token_id)]
        )
