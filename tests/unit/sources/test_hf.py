"""hf:// from a hub on loopback, asked by huggingface_hub itself."""

import hashlib
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources import ResolvedModel, resolve
from quire_engine.sources.hf import HubModel, parse_hf
from tests.unit.sources.hub_server import COMMIT, HubState

SOURCE = "hf://Org/Repo@main"
GGUF = b"GGUF" + bytes(range(256)) * 100


def _resolve(environment: dict[str, str], source: str = SOURCE, **options: object) -> ResolvedModel:
    return resolve(source, environment=environment, **options)  # type: ignore[arg-type]


def _leftovers(environment: dict[str, str]) -> list[str]:
    return [path.name for path in Path(environment["QUIRE_CACHE"]).rglob("*.part*")]


def test_a_revision_becomes_a_commit_and_a_folder_of_safe_files(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    found = _resolve(hub_environment)
    assert found.revision == COMMIT
    assert {path.name: path.read_bytes() for path in found.path.iterdir()} == {
        name: hub.files[name] for name in ("config.json", "tokenizer.json", "model.safetensors")
    }
    assert _leftovers(hub_environment) == []


def test_a_pinned_revision_is_its_commit_whatever_it_has_become(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    older = "f" * 40
    pinned = hub_environment | {"HF_REVISION_PIN": f"{SOURCE}={older}"}
    with pytest.raises(SourceError, match=older):  # this hub has only the newer one
        _resolve(pinned)

    hub.commit = older
    assert _resolve(pinned).revision == older
    hub.commit = COMMIT
    assert _resolve(pinned).revision == older
    assert _resolve(hub_environment).revision == COMMIT
    assert _resolve(pinned, "hf://Org/Repo@v1").revision == COMMIT


def test_a_pin_of_another_form_is_refused(hub_environment: dict[str, str]) -> None:
    with pytest.raises(SourceError, match="it takes SOURCE=COMMIT"):
        _resolve(hub_environment | {"HF_REVISION_PIN": "main"})


def test_the_commit_is_reported(hub_environment: dict[str, str]) -> None:
    told: list[str] = []
    _resolve(hub_environment, progress=lambda stage, _: told.append(stage))
    assert f"Org/Repo@main is {COMMIT}" in told
    assert "downloading model.safetensors" in told


def test_a_pinned_commit_in_the_cache_asks_nobody(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    first = _resolve(hub_environment, f"hf://Org/Repo@{COMMIT}")
    hub.requests.clear()
    assert _resolve(hub_environment, f"hf://Org/Repo@{COMMIT}") == first
    assert hub.requests == []


def test_a_branch_that_moved_on_is_fetched_anew_and_what_stayed_is_not_asked_again(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    old = _resolve(hub_environment)
    hub.requests.clear()
    assert _resolve(hub_environment).path == old.path
    assert hub.asked_files() == []
    hub.commit, hub.files["config.json"] = "f" * 40, b'{"model_type": "qwen3"}'
    new = _resolve(hub_environment)
    assert (new.revision, (new.path / "config.json").read_bytes()) == (
        "f" * 40,
        hub.files["config.json"],
    )


def test_one_gguf_file_is_fetched_alone(hub: HubState, hub_environment: dict[str, str]) -> None:
    hub.files["sub/a b.gguf"] = GGUF
    source = "hf://Org/Repo/sub/a b.gguf"
    digest = hashlib.sha256(GGUF).hexdigest()
    found = _resolve(hub_environment, source, sha256=digest)
    assert (found.path.name, found.path.read_bytes()) == ("a b.gguf", GGUF)
    assert (found.sha256, found.revision) == (digest, COMMIT)
    with pytest.raises(SourceError, match=rf"has SHA-256 {digest}, but {'0' * 64} was asked for"):
        _resolve(hub_environment, source, sha256="0" * 64)


def test_a_repository_with_one_gguf_file_needs_no_name(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    hub.files = {"config.json": b"{}", "model.gguf": GGUF}
    assert _resolve(hub_environment).path.name == "model.gguf"
    hub.commit, hub.files["other.gguf"] = "e" * 40, GGUF
    with pytest.raises(SourceError, match=r"several models; add one .*model\.gguf, other\.gguf"):
        _resolve(hub_environment)


def test_shards_come_with_their_index_and_without_the_single_file(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors": b"w" * n * 500 for n in (1, 2)}
    hub.files |= {**shards, "model.safetensors.index.json": b"{}"}
    names = {path.name for path in _resolve(hub_environment).path.iterdir()}
    assert names == {*shards, "model.safetensors.index.json", "config.json", "tokenizer.json"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"pytorch_model.bin": b"x"}, r"only as pytorch_model\.bin, which is not read because"),
        ({"README.md": b"x"}, "neither model.safetensors nor a .gguf file"),
    ],
)
def test_weights_that_are_not_data_are_refused(
    hub: HubState, hub_environment: dict[str, str], files: dict[str, bytes], message: str
) -> None:
    hub.files = files
    with pytest.raises(SourceError, match=message):
        _resolve(hub_environment)
    assert hub.asked_files() == []


@pytest.mark.parametrize("name", ["pytorch_model.bin", "modeling_own.py", "model.safetensors"])
def test_files_that_are_no_gguf_cannot_be_named(
    hub: HubState, hub_environment: dict[str, str], name: str
) -> None:
    with pytest.raises(SourceError, match=r"is no \.gguf file"):
        _resolve(hub_environment, f"{SOURCE}/{name}")
    with pytest.raises(SourceError, match=r"no file a\.gguf; its \.gguf files: none"):
        _resolve(hub_environment, f"{SOURCE}/a.gguf")
    assert hub.asked_files() == []


def test_a_broken_download_goes_on_where_it_stopped(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    hub.cdn.truncations = [1000, 500]
    assert _resolve(hub_environment).revision == COMMIT
    assert hub.cdn.ranges() == [None, "bytes=1000-", "bytes=1500-"]


def test_a_download_that_never_ends_is_told_and_the_next_start_goes_on(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    hub.cdn.truncations = [100] * 4
    with pytest.raises(SourceError, match=r"cannot fetch .*tried 4 times.*check the network"):
        _resolve(hub_environment)
    assert "model.safetensors.part" in _leftovers(hub_environment)
    _resolve(hub_environment)
    assert hub.cdn.ranges()[-1] == "bytes=400-"
    assert hub.asked_files().count("config.json") == 1


def test_a_model_larger_than_the_disk_is_refused_before_anything_is_asked_for(
    hub: HubState, hub_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(SourceError, match=r"Org/Repo needs \d+ MiB in .*free some"):
        _resolve(hub_environment)
    assert hub.asked_files() == []


def test_a_disk_that_fills_up_keeps_no_half_model_and_the_next_start_goes_on(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(SourceError, match="no space for the model"):
            _resolve(hub_environment)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    stored = {path.name for path in Path(hub_environment["QUIRE_CACHE"]).rglob("*.safetensors")}
    assert stored == set()
    weights = _resolve(hub_environment).path / "model.safetensors"
    assert weights.read_bytes() == hub.files["model.safetensors"]


def test_a_cache_that_is_no_folder_is_told(hub_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = hub_environment | {"QUIRE_CACHE": str(tmp_path / "file" / "cache")}
    with pytest.raises(SourceError, match=r"cannot store the model at .*QUIRE_CACHE"):
        _resolve(environment)


def test_a_hub_that_breaks_off_between_files_leaves_no_model_to_serve(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    hub.cdn.truncations = [0] * 4
    with pytest.raises(SourceError, match="cannot fetch"):
        _resolve(hub_environment)
    hub.statuses = [503] * 20
    # what came is not taken for the model while the hub cannot be asked for the rest
    with pytest.raises(SourceError):
        _resolve(hub_environment)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_content_that_is_not_what_the_hub_names_is_refused_and_not_kept(
    hub: HubState, hub_environment: dict[str, str], name: str
) -> None:
    hub.wrong[name] = hub.files[name][:-1] + b"!"
    with pytest.raises(SourceError, match=rf"{name} arrived with \d+ bytes that are not"):
        _resolve(hub_environment)
    assert _leftovers(hub_environment) == []
    hub.wrong.clear()
    assert (_resolve(hub_environment).path / name).read_bytes() == hub.files[name]


def test_a_model_larger_than_allowed_is_refused_before_the_download(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    with pytest.raises(SourceError, match="max_download_bytes is 1000: raise it"):
        _resolve(hub_environment, max_download_bytes=1000)
    assert hub.asked_files() == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf://Org/Other@main", "answered 401: it does not exist, or it is private or gated"),
        ("hf://Org/Repo@none", r'no revision "none": give a branch, a tag or a commit'),
    ],
)
def test_what_the_hub_does_not_have(
    hub_environment: dict[str, str], source: str, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        _resolve(hub_environment, source)


def test_a_slash_in_a_revision_is_written_as_an_escape(hub_environment: dict[str, str]) -> None:
    assert _resolve(hub_environment, "hf://Org/Repo@refs%2Fpr%2F1").revision == COMMIT


def test_those_who_ask_at_once_download_once(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: _resolve(hub_environment).path, range(4)))
    assert len(found) == 1
    assert sorted(hub.asked_files()) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_starts_without_the_hub_serve_what_was_fetched(
    hub_environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    nobody = {**hub_environment, "HF_ENDPOINT": "http://127.0.0.1:9"}
    with pytest.raises(SourceError, match=r"cannot ask http://127\.0\.0\.1:9 .*not in the cache"):
        _resolve(nobody)
    first = _resolve(hub_environment)
    assert _resolve(nobody) == first
    assert f"serving Org/Repo@main as it was, commit {COMMIT}" in caplog.text
    assert _resolve({**hub_environment, "HF_HUB_OFFLINE": "1"}) == first


def test_a_hub_in_trouble_is_as_one_that_is_not_there(
    hub: HubState, hub_environment: dict[str, str]
) -> None:
    hub.statuses = [503]
    with pytest.raises(SourceError, match="the hub answered 503"):
        _resolve(hub_environment)


def test_an_endpoint_that_is_no_hub(hub: HubState, hub_environment: dict[str, str]) -> None:
    hub.answers["/"] = hub.answer("/api/models/Org/Repo/revision/main", {})
    hub.commit = ""
    with pytest.raises(SourceError, match="names no commit for Org/Repo: check HF_ENDPOINT"):
        _resolve(hub_environment)


@pytest.mark.parametrize(
    "source",
    [
        "hf://Repo",
        "hf://Org/",
        "hf://Org/Repo@",
        "hf://Org/Repo@main/",
        "hf://Org/Repo@main/../x.gguf",
        "hf://Org/Repo@main/a//x.gguf",
        "hf://Org/Repo@main/a\\x.gguf",
        "hf://../Repo",
        "hf://Org/..",
        "hf://Org/Repo@a b",
    ],
)
def test_other_forms_and_paths_that_leave_the_repository_are_refused(source: str) -> None:
    with pytest.raises(SourceError, match="is not hf://org/repo@revision"):
        parse_hf(source)


def test_the_revision_is_main_if_there_is_none() -> None:
    assert parse_hf("hf://Org/Repo") == HubModel(repo="Org/Repo", revision="main", file=None)
    assert parse_hf("hf://Org/Repo/a/b.gguf").file == "a/b.gguf"


def test_a_digest_is_for_single_files(hub_environment: dict[str, str]) -> None:
    with pytest.raises(SourceError, match="--sha256 is for single files"):
        _resolve(hub_environment, sha256="0" * 64)
