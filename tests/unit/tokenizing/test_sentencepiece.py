"""SentencePiece's tokenizers, from GGUF metadata and from tokenizer.model, cut text as it does."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.errors import ModelError
from quire_engine.models.loading.gguf_file import Metadata
from quire_engine.tokenizing.detokenizer import Detokenizer
from quire_engine.tokenizing.ggml import build_tokenizer
from quire_engine.tokenizing.loading import load_tokenizer
from quire_engine.tokenizing.sentencepiece import build_from_pieces
from quire_engine.tokenizing.sentencepiece_file import read_sentencepiece
from tests.unit.tokenizing.builders import CORPUS, train_byte_level, write_folder

WHOLE = ["<think>", "▁▁▁▁", "\n\n"]
CONTROL = ["<|end|>"]
PARTS = st.lists(
    st.sampled_from(
        [*"the catsond 123é日本🙂\t\n▁ﬁ\x00\u200d", *WHOLE, "    ", "  ", "<0x0A>", "<unk>", "and "]
    )
).map("".join)
TEXTS = st.one_of(st.text(), PARTS)


def train(folder: Path, *, adds_space: bool, **settings: Any) -> Path:
    """Train a byte-pair model as Llama 2's (with the space) and Gemma's were."""
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(line for text in CORPUS for line in text.splitlines()) * 20)
    options: dict[str, Any] = {
        "vocab_size": 420,
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "split_digits": True,
        "allow_whitespace_only_pieces": True,
        "user_defined_symbols": WHOLE,
        "control_symbols": CONTROL,
        "character_coverage": 0.99,
    }
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(folder / "tokenizer"),
        add_dummy_prefix=adds_space,
        minloglevel=2,
        **(options | settings),
    )
    return folder / "tokenizer.model"


@pytest.fixture(scope="module", params=[True, False], ids=["with a space", "as it is"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("spm"), adds_space=request.param)


def metadata_of(path: Path, **changes: Any) -> Metadata:
    """What llama.cpp's converter writes into a GGUF file."""
    model = read_sentencepiece(path)
    metadata: Metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [
            p.text.replace("▁", " ") if p.kind == 4 else p.text for p in model.pieces
        ],
        "tokenizer.ggml.scores": [p.score for p in model.pieces],
        "tokenizer.ggml.token_type": [int(p.kind) for p in model.pieces],
        "tokenizer.ggml.add_space_prefix": model.adds_space,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


def test_the_file_is_read_as_its_library_reads_it(trained: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_file=str(trained))
    model = read_sentencepiece(trained)
    assert [p.text for p in model.pieces] == [reference.id_to_piece(i) for i in range(420)]
    scores = [reference.get_score(i) for i in range(420)]
    assert [p.score for p in model.pieces] == scores


def test_texts_are_cut_as_by_sentencepiece(trained: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_file=str(trained))
    from_file = read_sentencepiece(trained)
    plain = build_from_pieces(from_file.pieces, adds_space=from_file.adds_space, origin="spm")
    from_gguf = build_tokenizer(metadata_of(trained), "tiny.gguf")

    @settings(deadline=None, max_examples=1500)
    @given(TEXTS)
    def check(text: str) -> None:
        expected = reference.encode(text)
        assert plain.encode(text).ids == expected
        assert from_gguf.encode(text, add_special_tokens=False).ids == expected
        assert plain.decode(expected) == reference.decode(expected)

    check()


def test_text_comes_back_and_streams(trained: Path) -> None:
    tokenizer = build_tokenizer(metadata_of(trained), "tiny.gguf")
    rng = random.Random(4)
    for _ in range(200):
        text = "".join(rng.choice("the cat 日本🙂é\n  ▁".replace("▁", "")) for _ in range(30))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text
        stream = Detokenizer(tokenizer)
        assert stream.push_all(ids) + stream.finish() == text


def test_control_tokens_are_cut_out_and_left_out_of_text(trained: Path) -> None:
    tokenizer = build_tokenizer(metadata_of(trained), "tiny.gguf")
    ids = tokenizer.encode("the<|end|>").ids
    assert ids[0] == 1
    assert ids[-1] == tokenizer.token_to_id("<|end|>")
    assert tokenizer.decode(ids) == "the"


def test_bos_is_left_out_where_the_file_says_so(trained: Path) -> None:
    metadata = metadata_of(trained, **{"tokenizer.ggml.add_bos_token": False})
    assert build_tokenizer(metadata, "tiny.gguf").encode("the").ids[0] != 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.scores": None}, r"scores must have 420 numbers, one for each token"),
        ({"tokenizer.ggml.scores": [0.0]}, r"scores must have 420 numbers"),
        ({"tokenizer.ggml.scores": ["x"] * 420}, "scores has entries that are no numbers"),
        ({"tokenizer.ggml.token_type": None}, r"token_type must have 420 numbers"),
        ({"tokenizer.ggml.tokens": ["a"] * 420}, "two of its pieces are the same"),
        ({"tokenizer.ggml.remove_extra_whitespaces": True}, "removes spaces is not supported"),
    ],
)
def test_damage_in_a_gguf_file_is_named(
    trained: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=rf"tiny\.gguf: .*{message}"):
        build_tokenizer(metadata_of(trained, **changes), "tiny.gguf")


def folder_with(trained: Path, folder: Path, **settings: Any) -> Path:
    """A Hugging Face folder that has tokenizer.model instead of tokenizer.json."""
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    write_folder(folder, train_byte_level(), **(named | settings))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(trained.read_bytes())
    return folder


def test_a_folder_with_tokenizer_model_alone(trained: Path, tmp_path: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_file=str(trained))
    tokenizer = load_tokenizer(folder_with(trained, tmp_path))
    assert tokenizer.encode(CORPUS[1]) == [1, *reference.encode(CORPUS[1])]
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == (2,)


def test_added_tokens_of_a_folder(trained: Path, tmp_path: Path) -> None:
    added = {
        "0": {"content": "<unk>", "special": True},
        "420": {"content": "<|user|>", "special": True},
        "421": {"content": "<tool>", "special": False},
    }
    folder = folder_with(trained, tmp_path, added_tokens_decoder=added, add_bos_token=False)
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode("the<|user|>the<tool>")
    assert (ids[-1], 420 in ids, ids[0]) == (421, True, tokenizer.encode("the")[0])
    assert tokenizer.decode(ids).endswith("the<tool>")
    assert 420 in tokenizer.special_token_ids


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"999": {"content": "x"}}, "has a token 999, but with tokenizer.model there are only"),
        ({"420": "x"}, "added_tokens_decoder of tokenizer_config.json is damaged"),
        ({"a": {"content": "x"}}, "is damaged"),
        ([1], "is damaged"),
    ],
)
def test_added_tokens_that_do_not_fit(
    trained: Path, tmp_path: Path, added: Any, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load_tokenizer(folder_with(trained, tmp_path, added_tokens_decoder=added))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model_type": "unigram", "vocab_size": 330},
            "is no byte-pair one, which is not supp",
        ),
        ({"normalization_rule_name": "nmt_nfkc"}, "asks for text to be normalized"),
        ({"remove_extra_whitespaces": True}, "asks for text to be normalized"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    path = train(tmp_path, adds_space=True, **settings)
    with pytest.raises(ModelError, match=message):
        read_sentencepiece(path)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_file_is_never_more_than_a_model_error(
    tmp_path_factory: pytest.TempPathFactory, trained: Path, data: st.DataObject
) -> None:
    content = bytearray(trained.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.model"
    path.write_bytes(content)
    with suppress(ModelError):
        model = read_sentencepiece(path)
        build_from_pieces(model.pieces, adds_space=True, origin=path.name)


def test_neither_tokenizer_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, train_byte_level())
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has neither tokenizer\.json nor tokenizer\.model"):
        load_tokenizer(folder)
