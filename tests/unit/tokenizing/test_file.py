"""A tokenizer.json in place of a model's own."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import models

from quire_engine.errors import ModelError
from quire_engine.tokenizing.file import load_tokenizer_file
from tests.unit.models.test_generation_defaults import folder_of


def save(path: Path, num_tokens: int) -> Path:
    vocabulary = {f"t{number}": number for number in range(num_tokens)}
    model = models.WordLevel(vocab=vocabulary, unk_token="t0")
    tokenizers.Tokenizer(model).save(str(path))
    return path


def test_it_is_used_with_the_models_end_tokens_and_a_plain_conversation(tmp_path: Path) -> None:
    path = save(tmp_path / "tokenizer.json", 64)
    tokenizer = load_tokenizer_file(path, folder_of(tmp_path, None))
    assert (tokenizer.encode("t7"), tokenizer.eos_token_ids) == ([7], (2,))
    assert load_tokenizer_file(path, None).eos_token_ids == ()
    assert tokenizer.chat_template is not None


def test_one_that_knows_more_tokens_than_the_model_is_another_models(tmp_path: Path) -> None:
    path = save(tmp_path / "tokenizer.json", 65)
    with pytest.raises(ModelError, match="has 65 tokens, but the model only 64: it is another"):
        load_tokenizer_file(path, folder_of(tmp_path, None))


def test_one_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: there is no such file"):
        load_tokenizer_file(tmp_path / "none.json", None)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ModelError, match=r"bad\.json cannot be read"):
        load_tokenizer_file(tmp_path / "bad.json", None)
