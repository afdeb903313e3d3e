"""What single tokens stand for, in each way that vocabularies spell bytes."""

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models

from quire_engine.tokenizing.simple import build_simple_tokenizer
from quire_engine.tokenizing.spelling import Spelling
from tests.unit.tokenizing.builders import CONTROL, train_byte_level

BACKEND = train_byte_level()


def sentencepiece_like() -> tokenizers.Tokenizer:
    """Llama 2's decoder: U+2581 for a space, single bytes where there is no piece."""
    vocabulary = {"<unk>": 0, "\u2581sea": 1, "\u2581": 2, "<0xE6>": 3, "<0x97>": 4, "<0xA5>": 5}
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    backend.add_special_tokens([AddedToken("<s>", special=True)])
    return backend


@pytest.mark.parametrize("text", ["sea", " two  spaces\n", "\u65e5\U0001f600", "\x00\x7f\u0100"])
def test_byte_level_tokens_joined_are_the_text(text: str) -> None:
    spelling = Spelling(BACKEND)
    token_ids = BACKEND.encode(text).ids
    assert b"".join(map(spelling.bytes_of, token_ids)) == text.encode()


def test_half_a_character_is_shown_as_such() -> None:
    spelling = Spelling(BACKEND)
    first, *_ = BACKEND.encode("\U00010348").ids
    assert spelling.bytes_of(first) == b"\xf0"
    assert spelling.text_of(first) == "\ufffd"


def test_control_tokens_are_their_names() -> None:
    spelling = Spelling(BACKEND)
    token_id = BACKEND.token_to_id(CONTROL[0])
    assert token_id is not None
    assert spelling.text_of(token_id) == CONTROL[0]


def test_pieces_keep_their_space_and_bytes() -> None:
    spelling = Spelling(sentencepiece_like())
    assert spelling.text_of(1) == " sea"
    assert spelling.text_of(2) == " "
    assert b"".join(map(spelling.bytes_of, (3, 4, 5))) == "\u65e5".encode()
    assert spelling.text_of(6) == "<s>"


def test_the_simple_tokenizers_are_bytes() -> None:
    spelling = build_simple_tokenizer().spelling
    assert [spelling.bytes_of(byte) for byte in range(256)] == [bytes([b]) for b in range(256)]


def test_an_id_beyond_the_vocabulary_is_nothing() -> None:
    assert Spelling(BACKEND).bytes_of(10_000) == b""
