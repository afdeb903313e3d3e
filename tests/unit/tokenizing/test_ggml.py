"""A tokenizer built from GGUF metadata encodes as the one it was written from."""

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Tokenizer

from quire_engine.errors import ModelError
from quire_engine.tokenizing.ggml import PRE_TOKENIZERS, build_tokenizer
from tests.unit.tokenizing.builders import ggml_metadata, train_byte_level

ORIGINAL = train_byte_level()
REBUILT = build_tokenizer(ggml_metadata(ORIGINAL, "smollm"), "tiny.gguf")


@settings(deadline=None)
@given(st.text())
def test_encodes_any_text_as_the_original(text: str) -> None:
    ids = REBUILT.encode(text).ids
    assert ids == ORIGINAL.encode(text).ids
    assert REBUILT.decode(ids) == text


def test_control_tokens_stay_whole_and_are_left_out_of_text() -> None:
    ids = REBUILT.encode("<|start|>the<|end|>").ids
    assert ids[0] == 1
    assert ids[-1] == 0
    assert REBUILT.decode(ids) == "the"


def test_user_defined_tokens_stay_whole_and_are_text() -> None:
    metadata = ggml_metadata(ORIGINAL, "smollm")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    tokens.append("<think>")
    types.append(4)
    tokenizer = build_tokenizer(metadata, "tiny.gguf")
    ids = tokenizer.encode("a<think>b").ids
    assert len(tokens) - 1 in ids
    assert tokenizer.decode(ids) == "a<think>b"


PIECES = {
    "gpt-2": [("ab12 345", ["ab", "12", " 345"]), ("a  1", ["a", " ", " 1"])],
    "smollm": [("ab12 345", ["ab", "1", "2", " ", "3", "4", "5"]), ("a  1", ["a", "  ", "1"])],
    "llama-bpe": [("ab12 3456", ["ab", "12", " ", "345", "6"]), ("(ab\n\nc", ["(ab", "\n\n", "c"])],
    "qwen2": [("ab12", ["ab", "1", "2"]), ("I'll", ["I", "'ll"])],
    "gpt-4o": [("HelloWorld 12345", ["Hello", "World", " ", "123", "45"]), ("I'll", ["I'll"])],
    "tekken": [("HelloWORLD 12", ["Hello", "WORLD", " ", "1", "2"]), ("I'll", ["I", "'ll"])],
}


@pytest.mark.parametrize("pre", PIECES)
def test_text_is_split_as_the_model_was_trained(pre: str) -> None:
    for text, pieces in PIECES[pre]:
        found = PRE_TOKENIZERS[pre]().pre_tokenize_str(text)
        assert [text[start:end] for _, (start, end) in found] == pieces


def test_qwens_text_is_split_and_normalized_as_transformers_does() -> None:
    vocabulary = train_byte_level("qwen2")
    metadata = ggml_metadata(vocabulary, "qwen2")
    merges: Any = [
        tuple(pair.split(" ")) for pair in cast("Any", metadata["tokenizer.ggml.merges"])
    ]
    reference = Qwen2Tokenizer(vocab=vocabulary.get_vocab(), merges=merges)
    rebuilt = build_tokenizer(metadata, "tiny.gguf")

    @settings(deadline=None)
    @given(st.one_of(st.text(), st.text("aé日1 \n\t'sE\u0301🙂")))
    def check(text: str) -> None:
        assert rebuilt.encode(text).ids == reference.encode(text)

    check()


def test_bos_is_added_where_the_file_asks() -> None:
    for add, expected in ((True, True), (False, False), (None, False)):
        metadata = ggml_metadata(ORIGINAL, "smollm", **{"tokenizer.ggml.add_bos_token": add})
        tokenizer = build_tokenizer(metadata, "tiny.gguf")
        assert (tokenizer.encode("the").ids[0] == 1) == expected
        assert tokenizer.encode("the", add_special_tokens=False).ids[0] != 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer 'bert' is not supported; supported are"),
        ({"tokenizer.ggml.pre": "bloom"}, "'bloom' is not supported; supported are dbrx, deep"),
        ({"tokenizer.ggml.tokens": None}, r"tokenizer\.ggml\.tokens is missing"),
        ({"tokenizer.ggml.merges": ["ab"]}, "merges is damaged at 'ab'"),
        ({"tokenizer.ggml.merges": ["ab zzzz"]}, "merges are damaged"),
    ],
)
def test_a_wrong_tokenizer_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_tokenizer(ggml_metadata(ORIGINAL, "smollm", **changes), "tiny.gguf")
