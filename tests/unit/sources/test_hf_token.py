"""Private and gated repositories: where the token comes from, and whom it is shown."""

from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources import resolve
from quire_engine.sources.hf_token import read_token
from tests.unit.sources.hub_server import COMMIT, HubState

SOURCE = "hf://Org/Repo@main"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("hf_secret\n")
    return str(path)


@pytest.mark.parametrize("is_private", [False, True])
def test_a_token_opens_a_gated_repository_and_stays_with_the_hub(
    hub: HubState, hub_environment: dict[str, str], token_file: str, is_private: bool
) -> None:
    hub.token, hub.is_private = "hf_secret", is_private
    found = resolve(SOURCE, environment=hub_environment, hf_token_file=token_file)
    assert found.revision == COMMIT
    assert all(headers["authorization"] == "Bearer hf_secret" for _, headers in hub.requests)
    assert hub.cdn.requests
    assert not any("authorization" in headers for _, headers in hub.cdn.requests)


def test_a_gated_repository_without_a_token_says_where_to_go(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    hub.token = "hf_secret"
    endpoint = hub_environment["HF_ENDPOINT"]
    with pytest.raises(SourceError, match=rf"answered 401: .*terms at {endpoint}/Org/Repo.*token"):
        resolve(SOURCE, environment=hub_environment)


def test_a_token_without_access_says_so_and_is_not_shown(
    hub: HubState, hub_environment: dict[str, str], token_file: str
) -> None:
    hub.token = "hf_other"
    with pytest.raises(SourceError, match="answered 403: your token has no access") as raised:
        resolve(SOURCE, environment=hub_environment, hf_token_file=token_file)
    assert "hf_secret" not in str(raised.value)
    hub.is_private = True
    with pytest.raises(SourceError, match=r"does not exist \(404\)"):
        resolve(SOURCE, environment=hub_environment, hf_token_file=token_file)


def test_the_setting_wins_over_the_variable_and_that_over_the_file(
    token_file: str, tmp_path: Path
) -> None:
    home = tmp_path / ".cache" / "huggingface"
    home.mkdir(parents=True)
    assert read_token(None, {"HOME": str(tmp_path)}) is None
    (home / "token").write_text("hf_login")
    other = tmp_path / "other"
    other.write_text("hf_path")
    environment = {"HOME": str(tmp_path)}
    assert read_token(None, environment) == "hf_login"
    assert read_token(None, {"HF_HOME": str(home)}) == "hf_login"
    environment["HF_TOKEN_PATH"] = str(other)
    assert read_token(None, environment) == "hf_path"
    environment["HF_TOKEN"] = "hf_variable"
    assert read_token(None, environment) == "hf_variable"
    assert read_token(token_file, environment) == "hf_secret"


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", "hf_ü".encode()])
def test_a_file_without_a_token_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"[Tt]oken.*check HF_TOKEN_PATH"):
        read_token(None, {"HF_TOKEN_PATH": str(path)})


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"No such file.*check --hf-token-file"):
        read_token(str(tmp_path / "none"), {})
