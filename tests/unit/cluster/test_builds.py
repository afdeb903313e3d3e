"""Building programs: once, at once, and again from where it was cut off; with a `go` of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.cluster import catalogue
from hack.cluster.binaries import find_program, provide_programs
from hack.cluster.catalogue import COREDNS, PROJECT
from hack.cluster.errors import ClusterError
from hack.cluster.folders import cluster_folder
from tests.api.servers import is_alive, wait_until

_GO = """\
#!/bin/sh
case "$1" in
env) echo go1.99.0 ;;
list) echo one; echo two ;;
build)
    echo "$$" >> "$BUILDS"
    echo some/package >&2
    while [ -e "$BUILDS.hold" ]; do sleep 0.02; done
    if [ -e "$BUILDS.fail" ]; then echo "cannot find module" >&2; exit 1; fi
    touch "$GOCACHE/compiled"
    while [ "$1" != -o ]; do shift; done
    echo program > "$2" ;;
esac
"""
_BUILD = (sys.executable, "-m", "hack.cluster", "build", "coredns")


class FakeGo:
    """A Go on PATH that writes down when it is asked to build."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._builds = folder / "builds"
        program = folder / "bin" / "go"
        program.parent.mkdir()
        program.write_text(_GO)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("BUILDS", str(self._builds))
        monkeypatch.setenv("QUIRE_CACHE", str(folder / "cache"))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    @property
    def builds(self) -> list[int]:
        """Process numbers of the builds so far."""
        return [int(line) for line in self._builds.read_text().split()] if self.began else []

    @property
    def began(self) -> bool:
        """Whether any build was asked for."""
        return self._builds.exists()

    def switch(self, name: str, *, on: bool) -> None:
        """Make builds wait (`hold`) or fail (`fail`), or not any more."""
        path = self._builds.with_name(f"builds.{name}")
        path.touch() if on else path.unlink()


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    return FakeGo(tmp_path, monkeypatch)


def test_a_program_is_built_once_and_found_ever_after(go: FakeGo) -> None:
    told: list[str] = []
    assert find_program("coredns") is None
    first = provide_programs(["coredns"], told.append)
    assert first["coredns"].read_text() == "program\n"
    assert provide_programs(["coredns"], told.append) == first
    assert len(go.builds) == 1
    assert COREDNS.version in first["coredns"].parent.name
    assert "building it from its Go module" in told[0]


def test_what_was_compiled_is_removed_when_the_program_is_there(go: FakeGo) -> None:
    provide_programs(["coredns"], lambda _: None)
    assert [path.name for path in cluster_folder("tools").iterdir() if path.is_dir()] == [
        COREDNS.key
    ]


def test_a_second_process_waits_for_the_one_that_builds(go: FakeGo) -> None:
    go.switch("hold", on=True)
    with _building() as first, _building() as second:
        wait_until(lambda: go.began)
        assert second.stderr is not None
        assert first.stderr is not None
        waiting = [first, second]
        # either may be first; the other one says that it waits
        lines = [_first_line(process) for process in waiting]
        assert sorted("another process" in line for line in lines) == [False, True]
        go.switch("hold", on=False)
        assert [process.wait(60) for process in waiting] == [0, 0]
    assert len(go.builds) == 1


def test_a_build_that_was_killed_goes_on_where_it_was(go: FakeGo) -> None:
    go.switch("hold", on=True)
    with _building() as process:
        wait_until(lambda: bool(go.builds))
        process.kill()
        process.wait()
    compiled = cluster_folder("tools") / f"partial-{COREDNS.key}" / "go-cache"
    (compiled / "from-before").touch()
    wait_until(lambda: not is_alive(go.builds[0]))
    assert find_program("coredns") is None
    assert (compiled / "from-before").exists()
    go.switch("hold", on=False)
    provide_programs(["coredns"], lambda _: None)
    assert find_program("coredns") is not None
    assert not compiled.exists()


def test_a_failed_build_says_what_go_said_and_leaves_no_program(go: FakeGo) -> None:
    go.switch("fail", on=True)
    with pytest.raises(
        ClusterError, match=r"coredns v\S+ cannot be built: .*\n?cannot find module"
    ):
        provide_programs(["coredns"], lambda _: None)
    assert find_program("coredns") is None


def test_programs_built_elsewhere_are_taken(
    go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "assets" / "etcd"
    given.parent.mkdir()
    given.touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given.parent))
    assert provide_programs(["etcd"])["etcd"] == given
    assert not go.began


def test_another_go_mod_is_another_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = COREDNS.key
    changed = tmp_path / "coredns" / "go.mod"
    changed.parent.mkdir()
    changed.write_text(COREDNS.go_mod.read_text() + "\n// changed\n")
    monkeypatch.setattr(catalogue, "MODULES", tmp_path)
    assert COREDNS.key != before


def test_an_unknown_program_is_refused_with_the_known_ones(go: FakeGo) -> None:
    ran = subprocess.run(
        [*_BUILD, "korenens"], capture_output=True, text=True, cwd=PROJECT, check=False
    )
    assert ran.returncode == 1
    assert "there is no korenens: programs are etcd, kube-apiserver" in ran.stderr


def _building() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        _BUILD, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline()
