"""Building: once among processes, from scratch after a change, and a clear reason when it fails."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from quire_kernels.cpu import build as building
from quire_kernels.cpu.build import BuildError, build, choose_recipe
from quire_kernels.cpu.library import load_library, unavailable_reason

SOURCE = """#include "answer.h"
#pragma GCC visibility push(default)
extern "C" int answer() { return ANSWER; }
"""
SCRIPT = """
import ctypes, sys
from pathlib import Path
from quire_kernels.cpu import build as building
building.SOURCES = Path(sys.argv[1])
path = building.build(building.choose_recipe())
print(ctypes.CDLL(str(path)).answer(), path)
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny library in place of the real one, and an empty cache."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "answer.cpp").write_text(SOURCE)
    (folder / "answer.h").write_text("#define ANSWER 42\n")
    monkeypatch.setattr(building, "SOURCES", folder)
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that notes each call and passes it on."""
    real = choose_recipe().compiler
    log, script = tmp_path / "calls", tmp_path / "noting-compiler"
    log.touch()
    script.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    return log


def num_links(log: Path) -> int:
    return sum("-shared" in line for line in log.read_text().splitlines())


def test_three_processes_build_once(sources: Path, compiler: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(sources)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate(timeout=120)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(answers) == 1
    assert answers.pop().startswith("42 ")
    assert num_links(compiler) == 1


def test_second_build_finds_the_first(sources: Path, compiler: Path) -> None:
    assert build(choose_recipe()) == build(choose_recipe())
    assert num_links(compiler) == 1


@pytest.mark.parametrize("name", ["answer.cpp", "answer.h"])
def test_a_changed_source_is_built_again(name: str, sources: Path) -> None:
    first = build(choose_recipe())
    with (sources / name).open("a") as file:
        file.write("// changed\n")
    assert build(choose_recipe()) != first


def test_flags_and_processor_are_part_of_the_key(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {choose_recipe().key(), choose_recipe(portable=True).key()}
    monkeypatch.setattr(building, "describe_processor", lambda: "another")
    keys.add(choose_recipe().key())
    assert len(keys) == 3


def test_nothing_half_built_is_left_behind(sources: Path) -> None:
    (sources / "answer.h").write_text("#define ANSWER not_declared\n")
    with pytest.raises(BuildError, match=r"failed with status 1: .*not_declared"):
        build(choose_recipe())
    kernels = sources.parent / "cache" / "kernels"
    assert {path.suffix for path in kernels.iterdir()} == {".lock"}


def test_no_compiler_is_said_with_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"no C\+\+ compiler.*g\+\+, clang\+\+"):
        choose_recipe()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler \\(from CXX\\)"):
        choose_recipe()


def test_a_cache_that_cannot_be_written_is_said(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_CACHE", str(sources / "answer.h"))
    with pytest.raises(BuildError, match="cannot keep the compiled kernels"):
        build(choose_recipe())


def test_the_reason_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    for cached in (load_library, unavailable_reason):
        cached.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            reasons = [unavailable_reason() for _ in range(3)]
    finally:
        for cached in (load_library, unavailable_reason):
            cached.cache_clear()
    assert reasons[0] is not None
    assert reasons == [reasons[0]] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "torch computes instead" in caplog.text


def test_importing_the_package_imports_neither_torch_nor_the_library() -> None:
    code = "import sys, quire_kernels.cpu; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
