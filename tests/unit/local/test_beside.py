"""Commands that serve and ask in one process, with a stand-in for the server."""

import socket
from dataclasses import replace

import pytest

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.server import run
from quire_local import complete
from quire_local.beside import serve_beside, url_of, with_free_port
from tests.unit.local.stand_in import StandIn


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(num_not_ready=2)
    monkeypatch.setattr(run, "run", stand_in.run)
    return stand_in


def test_complete_prints_the_answer_alone_and_ends(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete.main(["--input", "Capital?", "--max-tokens", "5"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Paris.\n"
    assert "the server's own lines" in shown.err
    assert server.num_not_ready == 0
    [(path, body)] = server.requests
    assert path == "/v1/chat/completions"
    assert body["max_tokens"] == 5


def test_complete_tells_a_refusal_in_one_line(
    server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusal = "too long"
    assert complete.main(["--input", "Capital?", "--raw"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "quire: error: too long"


def test_complete_that_is_interrupted_while_loading_is_status_130(
    server: StandIn,
) -> None:
    server.num_not_ready = 1_000_000
    server.interrupted.set()
    assert complete.main(["--input", "Capital?"]) == 130


def test_an_error_of_the_server_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: EngineConfig) -> int:
        raise ConfigError("port is busy")

    monkeypatch.setattr(run, "run", refuse)
    asked: list[str] = []
    with pytest.raises(ConfigError, match="port is busy"):
        serve_beside(with_free_port(_config(port=0)), asked.append)
    assert asked == []


def test_port_zero_becomes_a_free_port_and_another_stays() -> None:
    port = with_free_port(_config(port=0)).server.port
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
    assert with_free_port(_config(port=81)).server.port == 81


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:81"),
        ("0.0.0.0", "http://127.0.0.1:81"),
        ("::", "http://[::1]:81"),
        ("gpu-7", "http://gpu-7:81"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    assert url_of(_config(port=81, host=host)) == url


def _config(*, port: int, host: str = "127.0.0.1") -> EngineConfig:
    config = EngineConfig()
    return replace(config, server=replace(config.server, port=port, host=host))
