"""Keys and internal tokens over HTTP, and that a rotation needs no restart."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from quire_engine.protocol import metric_names as names
from quire_engine.protocol.internal_token import internal_token, valid_tokens
from quire_engine.server.access import OPEN_PATHS
from tests.api.scraping import scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until

SECRET, SERVICE = b"the-operators-root-secret", ("default", "chat")
KEY = "sk-from-the-environment"
COMPLETIONS = "/v1/completions"
BODY = {"model": MODEL, "prompt": "Once", "max_tokens": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Secrets as Kubernetes mounts them: links to links, swapped all at once."""
    made = tmp_path_factory.mktemp("secrets")
    (made / "tokens").symlink_to("..data/tokens")
    (made / "keys").symlink_to("..data/keys")
    rotate(made, epoch=7, keys=("sk-first",))
    return made


def rotate(folder: Path, *, epoch: int, keys: tuple[str, ...]) -> None:
    version = folder / f"..{epoch}"
    version.mkdir()
    (version / "tokens").write_text("\n".join(valid_tokens(SECRET, *SERVICE, epoch)))
    (version / "keys").write_text("\n".join(keys))
    link = folder / "..new"
    link.symlink_to(version.name)
    link.replace(folder / "..data")


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[RunningServer]:
    flags = ("--internal-token-file", f"{folder}/tokens", "--api-key-file", f"{folder}/keys")
    with RunningServer(*SIMULATED, *flags, env={"QUIRE_API_KEY": KEY}) as running:
        yield running


def ask(server: RunningServer, bearer: str | None, path: str = COMPLETIONS) -> httpx.Response:
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    if path == COMPLETIONS:
        return server.post(path, BODY, headers=headers)
    return httpx.get(server.url + path, headers=headers, timeout=10)


def token(epoch: int) -> str:
    return internal_token(SECRET, *SERVICE, epoch)


def test_openais_client_gets_openais_error(guarded: RunningServer) -> None:
    wrong = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="sk-wrong", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError) as caught:
        wrong.completions.create(**BODY)  # type: ignore[call-overload]
    response = caught.value.response

    assert caught.value.code == "invalid_api_key"
    assert "sk-wrong" not in response.text
    assert response.headers["www-authenticate"] == 'Bearer realm="quire", error="invalid_token"'
    right = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=KEY, max_retries=0)
    with right:
        assert right.completions.create(**BODY).usage.completion_tokens == 2  # type: ignore[call-overload]


def test_without_a_key_the_answer_says_how_to_send_one(guarded: RunningServer) -> None:
    response = ask(guarded, None)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer realm="quire"'
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "missing_api_key")
    assert "x-quire-state" not in response.headers
    assert response.headers["x-request-id"]


def test_what_is_open_in_vllm_is_open(guarded: RunningServer) -> None:
    for path in ("/", "/health", "/healthz", "/metrics", "/readyz", "/version"):
        assert guarded.get(path).status_code == 200, path


def test_a_stranger_is_told_nothing_of_what_exists(guarded: RunningServer) -> None:
    for path in ("/v1/models", "/openapi.json", "/no/such/route", "/state", "/v1/models/none"):
        assert guarded.get(path).status_code == 401, path


def test_who_is_refused_is_counted_by_the_route_that_was_asked_for(
    guarded: RunningServer,
) -> None:
    def count(route: str, method: str) -> float:
        name = f"{names.HTTP_REQUESTS}{{handler={route}}}{{method={method}}}{{status=4xx}}"
        return scrape(guarded).get(name, 0.0)

    asked = [
        ("GET", "/v1/models/none", "/v1/models/{model_id:path}"),
        ("POST", COMPLETIONS, COMPLETIONS),
        ("PUT", COMPLETIONS, COMPLETIONS),
        ("GET", "/openapi.json", "/openapi.json"),
        ("GET", "/no/such/route", "none"),
    ]
    before = [count(route, method) for method, _, route in asked]
    for method, path, _ in asked:
        assert httpx.request(method, guarded.url + path, timeout=30).status_code == 401

    assert [count(route, method) for method, _, route in asked] == [one + 1 for one in before]


def test_a_key_does_not_steer_and_the_token_does(guarded: RunningServer) -> None:
    for path in ("/state", "/thresholds"):
        assert ask(guarded, KEY, path).status_code == 401
        assert ask(guarded, token(7), path).status_code == 200
    refused = ask(guarded, KEY, "/state")
    assert refused.json()["error"]["code"] == "internal_token_required"
    headers = {"authorization": f"Bearer {KEY}", "x-quire-salt": "tenant"}
    assert guarded.post(COMPLETIONS, BODY, headers=headers).status_code == 401


def test_a_rotation_reaches_a_running_server(guarded: RunningServer, folder: Path) -> None:
    assert [ask(guarded, token(n), "/state").status_code for n in (6, 7, 8)] == [200, 200, 401]
    assert ask(guarded, "sk-first").status_code == 200
    rotate(folder, epoch=8, keys=("sk-second",))

    assert ask(guarded, token(8), "/state").status_code == 200
    wait_until(lambda: ask(guarded, token(6), "/state").status_code == 401)
    assert ask(guarded, token(7), "/state").status_code == 200
    assert ask(guarded, "sk-second").status_code == 200
    wait_until(lambda: ask(guarded, "sk-first").status_code == 401)


def test_keys_are_neither_in_the_process_list_nor_with_the_core(guarded: RunningServer) -> None:
    for pid in (guarded.process.pid, guarded.core_pid()):
        assert KEY not in Path(f"/proc/{pid}/cmdline").read_text()
    assert KEY not in Path(f"/proc/{guarded.core_pid()}/environ").read_text()


def test_keys_are_no_part_of_what_the_state_tells(server: RunningServer) -> None:
    flags = ("--simulated-step-seconds", "0.002", "--api-key", "sk-a", "sk-b")
    with RunningServer(*SIMULATED, *flags) as other:
        for key in ("sk-a", "sk-b"):
            state = ask(other, key, "/state").json()
            assert state["config_hash"] == server.state().config_hash
        assert ask(other, "sk-a,sk-b", "/state").status_code == 401


def test_the_openapi_document_says_what_asks_for_a_key(server: RunningServer) -> None:
    document = server.get("/openapi.json").json()

    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert {"bearer": []} in document["security"]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            is_open = path in OPEN_PATHS
            assert (operation.get("security") == []) == is_open, path
            assert ("401" in operation["responses"]) != is_open, path
