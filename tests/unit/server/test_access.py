"""Who is let in where, by path, headers and origin."""

from pathlib import Path
from typing import Any

import pytest

from quire_engine.config import AccessConfig
from quire_engine.server.access import CONTROL_PATHS, OPEN_PATHS, Access

KEY, TOKEN = "sk-client", "f" * 64
CHAT = "/v1/chat/completions"
CLIENT_PATHS = (CHAT, "/v1/models", "/openapi.json", "/tokenize", "/state/live", "/no/such/route")


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    return str(path)


def status(access: Access, path: str, *, client: str | None = "127.0.0.1", **headers: str) -> int:
    """0 if it is let in; `bearer` is short for a header."""
    bearer = headers.pop("bearer", None)
    fields = {"host": "127.0.0.1:8000"} | headers
    if bearer is not None:
        fields["authorization"] = f"Bearer {bearer}"
    scope: dict[str, Any] = {
        "type": "http",
        "path": path,
        "client": None if client is None else (client, 5000),
        "headers": [
            (name.replace("_", "-").encode(), value.encode("latin-1"))
            for name, value in fields.items()
        ],
    }
    refusal = access.refuse(scope)
    return 0 if refusal is None else refusal.status


@pytest.mark.parametrize("path", [*OPEN_PATHS, "/page/app.js"])
def test_probes_metrics_and_the_page_ask_for_nothing(path: str, token_file: str) -> None:
    access = Access(AccessConfig(api_key=KEY, internal_token_file=token_file))

    assert status(access, path, client="192.0.2.1", host="models.example.com") == 0


@pytest.mark.parametrize("path", CLIENT_PATHS)
def test_all_else_asks_for_a_key_where_there_are_keys(path: str) -> None:
    access = Access(AccessConfig(api_key=f"sk-other,{KEY}"))

    assert status(access, path) == 401
    assert status(access, path, bearer="sk-wrong") == 401
    assert status(access, path, bearer=KEY) == 0
    assert status(access, path, bearer="sk-other") == 0
    assert status(access, path, bearer=f"{KEY},sk-other") == 401


@pytest.mark.parametrize(
    "authorization",
    [KEY, f"Basic {KEY}", "Bearer", "Bearer ", f"Bearer{KEY}", f"Bearer {KEY[:-1]}", "\xff", ""],
)
def test_what_is_no_bearer_of_a_key_is_refused(authorization: str) -> None:
    access = Access(AccessConfig(api_key=KEY))

    assert status(access, CHAT, authorization=authorization) == 401


def test_the_scheme_may_be_written_in_any_case() -> None:
    access = Access(AccessConfig(api_key=KEY))

    assert status(access, CHAT, authorization=f"bearer {KEY}") == 0


@pytest.mark.parametrize("path", CLIENT_PATHS)
def test_without_keys_and_token_everybody_may_generate(path: str) -> None:
    access = Access(AccessConfig())

    assert status(access, path, client="192.0.2.1", host="models.example.com") == 0
    assert status(access, path, sec_fetch_site="same-origin") == 0
    assert status(access, path, sec_fetch_site="cross-site") == 403


@pytest.mark.parametrize("path", sorted(CONTROL_PATHS))
def test_steering_asks_for_the_token_where_there_is_one(path: str, token_file: str) -> None:
    access = Access(AccessConfig(api_key=KEY, internal_token_file=token_file))

    assert status(access, path) == 401
    assert status(access, path, bearer=KEY) == 401
    assert status(access, path, bearer=TOKEN, client="192.0.2.1") == 0


def test_the_token_opens_everything_and_stands_for_a_key(token_file: str) -> None:
    for config in (
        AccessConfig(internal_token_file=token_file),
        AccessConfig(internal_token_file=token_file, api_key=KEY),
    ):
        access = Access(config)
        assert status(access, CHAT, bearer=TOKEN, x_quire_salt="tenant") == 0
        assert status(access, CHAT) == 401


@pytest.mark.parametrize("path", sorted(CONTROL_PATHS))
def test_without_a_token_file_steering_is_for_this_machine(path: str) -> None:
    access = Access(AccessConfig())

    for host in ("127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "[::1]"):
        assert status(access, path, host=host) == 0
    for client in ("::1", "127.8.8.8", "::ffff:127.0.0.1"):
        assert status(access, path, client=client) == 0
    for stranger in ("192.0.2.1", "::ffff:192.0.2.1", "10.127.0.1", None):
        assert status(access, path, client=stranger) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"x_real_ip": "127.0.0.1"},
        {"via": "1.1 proxy"},
        {"host": "rebound.example.com:8000"},
        {"host": ""},
        {"origin": "https://elsewhere.example.com"},
        {"origin": "http://localhost:3000"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_another_site_or_a_proxy_is_not_this_machine(headers: dict[str, str]) -> None:
    access = Access(AccessConfig())

    assert status(access, "/drain", **headers) == 403


def test_the_engines_own_page_on_this_machine_may_steer() -> None:
    own = {"origin": "http://127.0.0.1:8000", "sec_fetch_site": "same-origin"}

    assert status(Access(AccessConfig()), "/drain", **own) == 0


def test_steering_this_machine_takes_a_key_where_there_are_keys() -> None:
    access = Access(AccessConfig(api_key=KEY))

    assert status(access, "/drain") == 401
    assert status(access, "/drain", bearer=KEY) == 0
    assert status(access, "/drain", bearer=KEY, client="192.0.2.1") == 403


STEERING = {
    "x-quire-admit": "now",
    "x-quire-cost-hint": "blocks=1",
    "x-quire-gateway": "g;1",
    "x-quire-prefix": "0" * 8,
    "x-quire-salt": "tenant",
    "x-quire-of-tomorrow": "1",
}


@pytest.mark.parametrize("header", STEERING)
def test_headers_that_steer_are_refused_to_clients(header: str, token_file: str) -> None:
    named = {header: STEERING[header]}
    guarded = Access(AccessConfig(api_key=KEY, internal_token_file=token_file))
    open_to_all = Access(AccessConfig())

    assert status(guarded, CHAT, bearer=KEY, **named) == 401
    assert status(guarded, CHAT, bearer=TOKEN, **named) == 0
    assert status(open_to_all, CHAT, **named) == 0
    assert status(open_to_all, CHAT, client="192.0.2.1", **named) == 403


def test_class_and_deadline_are_for_every_client(token_file: str) -> None:
    access = Access(AccessConfig(api_key=KEY, internal_token_file=token_file))
    named = {"x-quire-priority": "background", "x-quire-deadline-ms": "5"}

    assert status(access, CHAT, bearer=KEY, client="192.0.2.1", **named) == 0


def test_keys_of_a_file_are_as_good_as_others(token_file: str) -> None:
    for config in (
        AccessConfig(api_key_file=token_file),
        AccessConfig(api_key_file=token_file, api_key=KEY),
    ):
        access = Access(config)
        assert status(access, CHAT) == 401
        assert status(access, CHAT, bearer=TOKEN) == 0
