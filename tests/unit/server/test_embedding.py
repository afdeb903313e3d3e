"""Vectors on their way to clients: brought to length 1, cut short where the model allows it."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from quire_engine.errors import ModelError, RequestError
from quire_engine.models.shorter_embeddings import ShorterEmbeddings, read_shorter_embeddings
from quire_engine.protocol.messages import FinishReason, TokenDelta
from quire_engine.server.embedding import EmbeddingMaker, shorten
from quire_engine.server.errors import ApiError
from quire_engine.server.schemas.embeddings import MAX_INPUTS, EmbeddingRequest


def bytes_of(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def test_vectors_have_length_1_also_when_they_are_cut() -> None:
    assert shorten(bytes_of(3.0, 4.0, 12.0), None).tolist() == pytest.approx(
        [3 / 13, 4 / 13, 12 / 13]
    )
    assert shorten(bytes_of(3.0, 4.0, 12.0), 2).tolist() == pytest.approx([0.6, 0.8])
    assert shorten(bytes_of(1e30, 1e30), None).tolist() == pytest.approx([0.5**0.5] * 2)


@pytest.mark.parametrize("values", [(0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)])
def test_what_has_no_direction_is_an_error(values: tuple[float, float]) -> None:
    with pytest.raises(ApiError) as caught:
        shorten(bytes_of(*values), None)
    assert caught.value.status == 500


def test_an_embedding_comes_with_the_end_alone() -> None:
    maker = EmbeddingMaker()
    done = TokenDelta(
        request_id="r", token_ids=[], finish_reason=FinishReason.LENGTH, embedding=bytes_of(1.0)
    )
    maker.take(done)
    assert (maker.finish_reason, maker.values) == ("stop", bytes_of(1.0))
    with pytest.raises(RuntimeError, match="without its embedding"):
        EmbeddingMaker().take(msgspec.structs.replace(done, embedding=None))


def read(**config: object) -> EmbeddingRequest:
    return msgspec.convert({"model": "m", **config}, EmbeddingRequest)


@pytest.mark.parametrize(
    ("given", "inputs"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2]], [[1], [2]])],
)
def test_one_input_or_several(given: object, inputs: object) -> None:
    assert read(input=given).inputs() == inputs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "must not be empty"),
        ([], "must not be empty"),
        (["a", ""], "nor any of several"),
        ([[1], []], "nor any of several"),
        ([1, "a"], "cannot be mixed"),
        (["a"] * (MAX_INPUTS + 1), "are more than 2048"),
    ],
)
def test_inputs_that_make_no_sense_are_refused(given: object, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        read(input=given).inputs()
    assert caught.value.parameter == "input"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ShorterEmbeddings()),
        ({"is_matryoshka": True}, ShorterEmbeddings(True)),
        ({"matryoshka_dimensions": [64, 32]}, ShorterEmbeddings(True, (32, 64))),
    ],
)
def test_a_models_files_say_whether_it_may_be_cut(
    tmp_path: Path, config: dict[str, object], expected: ShorterEmbeddings
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_shorter_embeddings(tmp_path)

    assert found == expected
    assert found.allow(32) == bool(config)
    assert found.allow(33) == (config == {"is_matryoshka": True})


@pytest.mark.parametrize(
    "config",
    [{"is_matryoshka": "yes"}, {"matryoshka_dimensions": [0]}, {"matryoshka_dimensions": 5}],
)
def test_files_that_say_nonsense_are_the_models_fault(
    tmp_path: Path, config: dict[str, object]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"config\.json"):
        read_shorter_embeddings(tmp_path)


def test_models_without_a_folder_are_not_cut(tmp_path: Path) -> None:
    assert read_shorter_embeddings(None) == ShorterEmbeddings()
    assert read_shorter_embeddings(tmp_path / "model.gguf") == ShorterEmbeddings()
