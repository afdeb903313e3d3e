"""Models that are already here, and names that are no model."""

import hashlib
from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources import resolve

CONTENT = b"GGUF and so on"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "my model.gguf"
    path.write_bytes(CONTENT)
    return path


def test_a_path_and_its_address_are_the_same_model(model: Path) -> None:
    assert resolve(str(model)).path == model
    assert resolve(model.as_uri()).path == model
    assert resolve(f"file://localhost{model.as_uri()[7:]}").path == model


def test_the_home_folder_may_be_written_as_a_tilde(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    assert resolve("~/my model.gguf").path == model


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    assert resolve(str(tmp_path)).path == tmp_path


def test_the_digest_is_checked_when_given(model: Path) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert resolve(str(model)).sha256 is None
    assert resolve(str(model), sha256=digest.upper()).sha256 == digest
    with pytest.raises(SourceError, match=rf"has SHA-256 {digest}, but {'0' * 64} was asked for"):
        resolve(str(model), sha256="0" * 64)


def test_a_folder_has_no_digest_to_check(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a folder: --sha256 is only for model files"):
        resolve(str(tmp_path), sha256="0" * 64)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{folder}/other.gguf", r"no model at .*there are my model\.gguf: give the path"),
        ("{folder}/none/other.gguf", "there is no folder"),
        ("{folder}/my model.gguf/inside", "cannot read the model .*Not a directory"),
        ("file://server/share/model.gguf", "write three slashes"),
        ("file:model.gguf", "write three slashes"),
        ("ftp://host/model.gguf", "models cannot be read from ftp://"),
        ("S3://bucket/model", "models cannot be read from s3://"),
    ],
)
def test_what_is_no_model_is_refused_with_what_to_give(
    model: Path, source: str, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        resolve(source.format(folder=model.parent))
