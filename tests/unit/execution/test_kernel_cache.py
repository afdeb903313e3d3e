"""Where compiled kernels are kept, and which packs an engine takes."""

import logging
from pathlib import Path

import pytest
from triton import knobs

from quire_engine.execution.cuda.kernel_cache import prepare_kernels, use_cache
from quire_kernels.compiled.packs import write_pack
from tests.unit.kernels.test_compiled import make_kernel


@pytest.fixture(autouse=True)
def triton_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the process, put back at the end."""
    monkeypatch.setattr(knobs, "propagate_env", False)
    monkeypatch.setattr(knobs.cache, "dir", knobs.cache.dir)
    monkeypatch.setattr(knobs.compilation, "store_binary_only", False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with packs of two architectures, and a damaged one."""
    packs = tmp_path / "packs"
    packs.mkdir()
    for arch in (80, 90):
        make_kernel(tmp_path / "made", f"KEY{arch}", arch)
        write_pack(tmp_path / "made", f"sm{arch}", packs / f"sm{arch}-m.kernels.tar.xz")
    (packs / "sm90-bad.kernels.tar.xz").write_bytes(b"no pack")
    return packs


def test_an_engine_takes_its_architectures_packs_and_says_why_not_the_others(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cache = tmp_path / "cache"
    prepare_kernels("sm90", {"QUIRE_CACHE": str(cache), "QUIRE_KERNELS": str(folder)})
    assert [each.name for each in (cache / "kernels" / "triton").iterdir()] == ["KEY90"]
    assert knobs.cache.dir == str(cache / "kernels" / "triton")
    assert knobs.compilation.store_binary_only
    good, bad = sorted(record.getMessage() for record in caplog.records)
    assert good.startswith(f"1 compiled kernels of {folder}/sm90-m")
    assert bad.startswith(f"compiled kernels of {folder}/sm90-bad.kernels.tar.xz are not used: it")


def test_a_pack_that_is_named_itself_is_taken_or_refused(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack = folder / "sm80-m.kernels.tar.xz"
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path / "c"), "QUIRE_KERNELS": str(pack)})
    assert "not used: it is of sm80, and here is sm90" in caplog.text


def test_a_place_without_packs_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = str(tmp_path / "nowhere")
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path), "QUIRE_KERNELS": nowhere})
    assert f"QUIRE_KERNELS is {nowhere}, where there is neither a pack nor a folder" in caplog.text


def test_tritons_own_setting_wins(tmp_path: Path) -> None:
    before = knobs.cache.dir
    environment = {"TRITON_CACHE_DIR": str(tmp_path / "t"), "QUIRE_CACHE": str(tmp_path / "q")}
    assert use_cache(environment) == tmp_path / "t"
    assert knobs.cache.dir == before
    assert not (tmp_path / "q").exists()


def test_a_cache_that_cannot_be_written_keeps_nobody_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path / "file")})
    assert "cannot be kept for the next start" in caplog.text
