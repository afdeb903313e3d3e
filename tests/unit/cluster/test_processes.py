"""A cluster's processes are found by their mark, whoever started them, and only they are ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.catalogue import PROJECT
from hack.cluster.errors import ClusterError
from hack.cluster.processes import Launcher, running_with
from tests.api.servers import is_alive, wait_until

_START = """
import sys
from pathlib import Path
from hack.cluster.processes import Launcher
folder = Path(sys.argv[1])
launcher = Launcher(folder, folder, ends_with_parent=sys.argv[2] == "owned")
launcher.start("sleep", ["sleep", "600"])
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, tmp_path / "logs", ends_with_parent=True)
    yield launcher
    launcher.kill()


def test_a_started_process_is_found_by_its_role(launcher: Launcher) -> None:
    launcher.start("node-1/sleep", ["sleep", "600"])
    wait_until(lambda: launcher.is_running("node-1/sleep"))
    (process,) = launcher.running()
    assert (process.role, process.command) == ("node-1/sleep", "sleep")
    assert not launcher.is_running("node-2/sleep")


def test_what_a_program_starts_is_not_taken_for_it(launcher: Launcher) -> None:
    launcher.start("starter", ["sh", "-c", "exec sleep 600"])
    # until then it is the program itself
    wait_until(lambda: [one.command for one in launcher.running()] == ["sleep"])
    assert not launcher.is_running("starter")
    launcher.kill("starter")
    assert launcher.running() == []


def test_what_a_program_starts_while_it_is_killed_is_killed_too(launcher: Launcher) -> None:
    launcher.start("starter", ["sh", "-c", "for _ in $(seq 300); do sleep 600 & done; wait"])
    wait_until(lambda: len(launcher.running()) > 1)
    launcher.kill("starter")
    assert launcher.running() == []


def test_only_the_processes_of_the_named_role_are_killed(launcher: Launcher) -> None:
    launcher.start("one/sleep", ["sleep", "600"])
    launcher.start("two/sleep", ["sleep", "600"])
    launcher.kill("one/sleep")
    assert {process.role for process in launcher.running()} == {"two/sleep"}


def test_another_clusters_processes_are_left_alone(launcher: Launcher, tmp_path: Path) -> None:
    other = Launcher(tmp_path / "other", tmp_path / "other", ends_with_parent=True)
    other.start("sleep", ["sleep", "600"])
    launcher.kill()
    assert [process.role for process in other.running()] == ["sleep"]
    other.kill()
    assert running_with(tmp_path / "other") == []


def test_an_ended_process_is_reported_with_its_last_words(launcher: Launcher) -> None:
    launcher.start("talker", ["sh", "-c", "echo no such file; exit 3"])
    with pytest.raises(ClusterError, match=r"(?s)everything: talker ended.*no such file"):
        launcher.wait_for("everything", lambda: False, ["talker"])


def test_a_process_knows_nothing_of_its_starters_environment(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    launcher.start("sleep", ["sleep", "600"])
    wait_until(lambda: launcher.is_running("sleep"))
    (process,) = launcher.running()
    assert "s3cret" not in Path(f"/proc/{process.pid}/environ").read_text()


@pytest.mark.parametrize("ownership", ["owned", "free"])
def test_a_process_ends_with_its_starter_only_if_asked_to(tmp_path: Path, ownership: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _START, str(tmp_path), ownership],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        (process,) = running_with(tmp_path)
        starter.kill()
    if ownership == "owned":
        wait_until(lambda: not is_alive(process.pid))
    else:
        assert is_alive(process.pid)
        Launcher(tmp_path, tmp_path, ends_with_parent=False).kill()
        wait_until(lambda: not is_alive(process.pid))
