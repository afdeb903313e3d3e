"""A server's folder of sockets goes with it, or with the next server where it was killed."""

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire_engine.core.private_directory import PrivateDirectory
from quire_engine.errors import ConfigError

SERVER = """
import time
from quire_engine.core.private_directory import PrivateDirectory
print(PrivateDirectory().path, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short one: sockets' paths are limited."""
    with tempfile.TemporaryDirectory(prefix="t") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


def leave_behind() -> Path:
    """The folder of a server that was killed, with a socket in it."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        folder = Path(server.stdout.readline().strip())
        bind(folder / "1-in")
        server.send_signal(signal.SIGKILL)
    assert folder.is_dir()
    return folder


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_only_the_user_can_enter_and_it_goes_with_its_content() -> None:
    directory = PrivateDirectory()
    bind(directory.path / "1-in")
    assert directory.path.stat().st_mode & 0o777 == 0o700

    directory.close()
    directory.close()

    assert not directory.path.exists()


def test_the_next_server_removes_what_a_killed_one_left() -> None:
    folder = leave_behind()

    PrivateDirectory().close()

    assert not folder.exists()


def test_a_living_servers_folder_stays() -> None:
    directory = PrivateDirectory()
    PrivateDirectory().close()

    assert directory.path.is_dir()
    directory.close()


def test_folders_of_others_stay_whatever_their_name(temporary_folder: Path) -> None:
    notes = temporary_folder / "quire-notes"
    notes.mkdir()
    (notes / "notes.txt").touch()
    used = leave_behind()
    (used / "notes.txt").touch()

    PrivateDirectory().close()

    assert (notes / "notes.txt").exists()
    assert (used / "notes.txt").exists()


def test_a_path_that_is_too_long_for_sockets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    with pytest.raises(ConfigError, match="set TMPDIR to a shorter"):
        PrivateDirectory()

    assert not list(long.iterdir())
