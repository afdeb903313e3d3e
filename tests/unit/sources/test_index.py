"""Which index is asked, as pip would choose."""

from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources.addresses import redacted
from quire_engine.sources.index import (
    DEFAULT_INDEX,
    IndexSettings,
    index_settings,
    normalized,
)


@pytest.fixture
def configured(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://mirror/simple/\ncert = /ca.pem\n")
    return {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(file)}


def test_environment_wins_over_pip_configuration(configured: dict[str, str]) -> None:
    assert index_settings(configured) == IndexSettings("https://mirror/simple", "/ca.pem")
    found = index_settings({**configured, "PIP_INDEX_URL": "https://own/", "PIP_CERT": "/own.pem"})
    assert found == IndexSettings("https://own", "/own.pem")


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_uv_variables_are_known(configured: dict[str, str], variable: str) -> None:
    assert index_settings({**configured, variable: "https://uv/simple"}).url == "https://uv/simple"


def test_without_configuration_it_is_the_public_index(tmp_path: Path) -> None:
    assert index_settings({"HOME": str(tmp_path)}).url == DEFAULT_INDEX


def test_broken_pip_configuration_is_an_error(configured: dict[str, str]) -> None:
    Path(configured["PIP_CONFIG_FILE"]).write_text("index-url = x")
    with pytest.raises(SourceError, match="pip's configuration cannot be read"):
        index_settings(configured)


def test_an_index_must_be_http() -> None:
    with pytest.raises(SourceError, match=r"file:///etc is not an http\(s\) address"):
        index_settings({"PIP_INDEX_URL": "file:///etc"})


def test_names_are_normalized_and_passwords_hidden() -> None:
    assert normalized("LLM__smol.LM2") == "llm-smol-lm2"
    assert redacted("https://user:secret@host:8/x") == "https://host:8/x"
