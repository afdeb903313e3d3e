"""Libraries compiled ahead: the fastest that runs here is taken, without a compiler."""

from __future__ import annotations

import ctypes
import logging
import platform
from pathlib import Path

import pytest

from quire_kernels.cpu import ahead, library
from quire_kernels.cpu import build as building
from quire_kernels.cpu.ahead import VARIANTS, compile_all, find_library, main
from quire_kernels.cpu.library import must_compile
from quire_kernels.cpu.processor import list_features

pytestmark = pytest.mark.skipif(
    platform.machine() not in VARIANTS, reason="nothing is compiled ahead for such processors"
)

SOURCE = """#pragma GCC visibility push(default)
extern "C" int answer() { return
#if defined(__AVX512VNNI__)
    512;
#elif defined(__AVXVNNI__)
    256;
#else
    2;
#endif
}
"""
ANSWERS = {"avx512-vnni": 512, "avx-vnni": 256, "avx2": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All variants of a tiny library; the cache is empty, and no compiler is found any more."""
    sources = tmp_path / "src"
    sources.mkdir()
    (sources / "answer.cpp").write_text(SOURCE)
    monkeypatch.setattr(building, "SOURCES", sources)
    compile_all(tmp_path / "compiled")
    monkeypatch.setattr(library, "find_library", lambda: find_library(tmp_path / "compiled"))
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    find_library.cache_clear()
    return tmp_path / "compiled"


def pretend(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    monkeypatch.setattr(ahead, "list_features", lambda: frozenset(features))
    find_library.cache_clear()


@pytest.mark.parametrize("variant", VARIANTS.get(platform.machine(), ()), ids=lambda one: one.name)
def test_a_processor_gets_the_fastest_that_it_can_run(
    variant: ahead.Variant, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, *variant.needs, "something_else")
    path = find_library(folder)
    assert path is not None
    assert path.name.startswith(f"{variant.name}-")


def test_what_is_found_is_loaded_without_a_compiler(folder: Path) -> None:
    if (path := find_library(folder)) is None:
        pytest.skip(f"this processor runs none of {', '.join(ANSWERS)}")
    name = path.stem.rpartition("-")[0]
    assert ctypes.CDLL(str(path)).answer() == ANSWERS[name]
    assert not must_compile()


def test_a_processor_that_runs_none_is_told_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, "sse2")
    assert find_library(folder) is None
    assert f"compiled ahead in {folder} are not used" in caplog.text


def test_what_was_compiled_of_other_sources_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (building.SOURCES / "answer.cpp").write_text(SOURCE + "// changed\n")
    find_library.cache_clear()
    assert find_library(folder) is None
    assert "none is of these sources" in caplog.text


def test_a_checkout_has_none_and_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert find_library(tmp_path / "nothing") is None
    assert not caplog.records


def test_features_are_words() -> None:
    assert "sse2" in list_features()


def test_without_a_compiler_an_image_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert main([str(tmp_path)]) == 1
    assert "no C++ compiler" in capsys.readouterr().err
