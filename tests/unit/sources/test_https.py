"""https:// from a server with a certificate of its own, and the ways that downloads fail."""

import hashlib
import resource
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources import ResolvedModel, model_name, resolve, transfer
from tests.unit.sources.web_server import Answer, WebState, serve_web

MODEL = b"GGUF" + bytes(range(256)) * 400
SHA256 = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that only those trust who are told to."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, which makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-nodes"]
    subprocess.run(
        [*command, *names, "-keyout", str(path.with_suffix(".key")), "-out", str(path)],
        check=True,
        capture_output=True,
    )
    return path


@pytest.fixture
def web() -> WebState:
    return WebState(answers={"/models/chat.gguf": Answer(MODEL, headers={"etag": '"1"'})})


@pytest.fixture
def url(web: WebState, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(transfer, "BACKOFF_SECONDS", 0.001)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with serve_web(web, context) as address:
        yield f"{address}/models/chat.gguf"


@pytest.fixture
def environment(certificate: Path, tmp_path: Path) -> dict[str, str]:
    return {"SSL_CERT_FILE": str(certificate), "QUIRE_CACHE": str(tmp_path / "cache")}


def _resolve(url: str, environment: dict[str, str], **options: object) -> ResolvedModel:
    return resolve(url, environment=environment, **options)  # type: ignore[arg-type]


def _files(environment: dict[str, str]) -> list[str]:
    root = Path(environment["QUIRE_CACHE"])
    return sorted(p.name for p in root.rglob("*") if p.is_file() and p.name != "lock")


def test_a_file_arrives_whole_once(web: WebState, url: str, environment: dict[str, str]) -> None:
    found = _resolve(url, environment)
    assert (found.path.name, found.path.read_bytes()) == ("chat.gguf", MODEL)
    assert found.sha256 == SHA256
    assert _resolve(url, environment) == found
    assert _resolve(url, environment, sha256=SHA256.upper()) == found
    assert len(web.requests) == 1
    assert _files(environment) == ["chat.gguf", "chat.gguf.json"]


def test_those_who_ask_at_once_download_once(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: _resolve(url, environment).path, range(4)))
    assert (len(found), len(web.requests)) == (1, 1)


def test_without_a_digest_the_one_that_came_is_told(url: str, environment: dict[str, str]) -> None:
    told: list[str] = []
    _resolve(url, environment, progress=lambda stage, _: told.append(stage))
    assert told[-1] == f"chat.gguf has SHA-256 {SHA256}; --sha256 pins it"


def test_a_broken_download_goes_on_where_it_stopped(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    web.truncations = [1000, 500]
    assert _resolve(url, environment).sha256 == SHA256
    assert web.ranges() == [None, "bytes=1000-", "bytes=1500-"]


def test_the_rest_of_another_version_is_never_put_after_the_first_part(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    web.truncations = [1000] * 4
    with pytest.raises(SourceError, match="tried 4 times"):
        _resolve(url, environment)
    changed = b"GGUF" + bytes(9000)
    web.answers["/models/chat.gguf"] = Answer(changed, headers={"etag": '"2"'})
    assert _resolve(url, environment).path.read_bytes() == changed


@pytest.mark.parametrize("headers", [{}, {"etag": 'W/"weak"'}])
def test_a_server_that_names_no_version_is_asked_for_the_whole_again(
    web: WebState, url: str, environment: dict[str, str], headers: dict[str, str]
) -> None:
    web.answers["/models/chat.gguf"] = Answer(MODEL, headers=headers)
    web.truncations = [1000]
    assert _resolve(url, environment).sha256 == SHA256
    assert web.ranges() == [None, None]


def test_a_digest_is_enough_to_go_on(web: WebState, url: str, environment: dict[str, str]) -> None:
    web.answers["/models/chat.gguf"] = Answer(MODEL)
    web.truncations = [1000]
    assert _resolve(url, environment, sha256=SHA256).sha256 == SHA256
    assert web.ranges() == [None, "bytes=1000-"]


def test_the_time_of_the_last_change_names_a_version_too(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    headers = {"last-modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
    web.answers["/models/chat.gguf"] = Answer(MODEL, headers=headers)
    web.truncations = [1000]
    assert _resolve(url, environment).sha256 == SHA256
    assert web.ranges() == [None, "bytes=1000-"]


def test_another_digest_than_asked_for_is_refused_and_not_kept(
    url: str, environment: dict[str, str]
) -> None:
    with pytest.raises(SourceError, match=rf"SHA-256 {SHA256}, but {'0' * 64} was asked.*nothing"):
        _resolve(url, environment, sha256="0" * 64)
    assert _files(environment) == []


def test_a_new_digest_fetches_what_is_there_now(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    _resolve(url, environment)
    changed = b"GGUF" + bytes(9000)
    web.answers["/models/chat.gguf"] = Answer(changed)
    wanted = hashlib.sha256(changed).hexdigest()
    assert _resolve(url, environment, sha256=wanted).path.read_bytes() == changed


def test_redirects_are_followed_to_https_only(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    moved = url.replace("chat.gguf", "moved.gguf")
    web.answers["/models/moved.gguf"] = Answer(status=302, headers={"location": url})
    assert _resolve(moved, environment).path.name == "moved.gguf"
    with serve_web(web) as plain:
        web.answers["/models/out.gguf"] = Answer(
            status=302, headers={"location": f"{plain}/models/chat.gguf"}
        )
        with pytest.raises(SourceError, match="the server redirects to, and it is not https"):
            _resolve(url.replace("chat.gguf", "out.gguf"), environment)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    url: str, environment: dict[str, str]
) -> None:
    without = {"QUIRE_CACHE": environment["QUIRE_CACHE"]}
    with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
        _resolve(url, without)


def test_plain_http_needs_a_digest(web: WebState, environment: dict[str, str]) -> None:
    with serve_web(web) as plain:
        source = f"{plain}/models/chat.gguf"
        with pytest.raises(SourceError, match=r"is not encrypted.*--sha256 as well"):
            _resolve(source, environment)
        assert _resolve(source, environment, sha256=SHA256).sha256 == SHA256


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, r"does not exist \(404\): check the address"),
        (410, r"does not exist \(410\)"),
        (401, "answered 401: the address needs a user and password"),
        (403, "answered 403: the address needs a user and password"),
        (418, "answered 418, which is no file"),
        (503, "the server answered 503; tried 4 times"),
    ],
)
def test_refusals_say_what_to_check(
    web: WebState, url: str, environment: dict[str, str], status: int, message: str
) -> None:
    web.statuses = [status] * 4
    with pytest.raises(SourceError, match=message):
        _resolve(f"{url}?signature=secret", environment)


def test_secrets_in_an_address_are_not_shown(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    secret = url.replace("https://", "https://user:word@") + "?signature=word"
    web.statuses = [403]
    with pytest.raises(SourceError) as raised:
        _resolve(secret, environment)
    assert "word" not in str(raised.value).replace("password", "")


@pytest.mark.parametrize("has_lengths", [True, False])
def test_a_file_larger_than_allowed_is_refused(
    web: WebState, url: str, environment: dict[str, str], has_lengths: bool
) -> None:
    web.has_lengths = has_lengths
    with pytest.raises(SourceError, match="max_download_bytes is 1000: raise it"):
        _resolve(url, environment, max_download_bytes=1000)


def test_a_file_larger_than_the_disk_is_refused_before_it_is_written(
    url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(SourceError, match=r"chat\.gguf needs \d+ MiB in .*free some"):
        _resolve(url, environment)
    assert _files(environment) == []


def test_a_disk_that_is_full_keeps_no_half_file(url: str, environment: dict[str, str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(SourceError, match="no space for the model"):
            _resolve(url, environment)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "chat.gguf" not in _files(environment)
    assert _resolve(url, environment).sha256 == SHA256


def test_a_page_in_place_of_the_file_is_refused(
    web: WebState, url: str, environment: dict[str, str]
) -> None:
    web.answers["/models/chat.gguf"] = Answer(b"<!DOCTYPE html>please log in")
    with pytest.raises(SourceError, match="is no GGUF file, for it begins with b'<!DOCTYPE html>"):
        _resolve(url, environment)
    assert _files(environment) == []


@pytest.mark.parametrize(
    "source",
    ["https://host/folder/", "https://host/model.bin", "https:///model.gguf", "https://h/a%2Fb"],
)
def test_addresses_of_no_gguf_file_are_refused(environment: dict[str, str], source: str) -> None:
    with pytest.raises(SourceError, match=r"is not https://host/path/file\.gguf"):
        _resolve(source, environment)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://user:word@host/a/chat%20it.gguf?signature=x", "chat it"),
        ("hf://Org/Repo@main", "Repo"),
        ("hf://Org/Repo@main/sub/chat.gguf", "chat"),
        ("hf://nonsense", "nonsense"),
        ("/models/chat.gguf", "chat"),
        ("models/folder/", "folder"),
    ],
)
def test_a_model_is_called_after_its_file_or_repository(source: str, name: str) -> None:
    assert model_name(source) == name
