"""What a reader does: a fresh folder with the repository's files, and terminals in it."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.api.servers import wait_until
from tests.docs.pages import ROOT, Block

_SECONDS = 300


def fresh_folder(folder: Path) -> Path:
    """The repository's files in a folder, with this environment: what was installed is kept.

    `make` finds the environment's stamps newer than the project's files, and installs nothing.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    for name in ("pyproject.toml", "uv.lock", "hack/bootstrap.sh"):
        os.utime(folder / name, (0, 0))
    return folder


class Terminal:
    """One that runs a block until it is interrupted, as by Ctrl-C."""

    def __init__(self, command: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._pieces: list[bytes] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._signal(signal.SIGINT)
        try:
            self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
            raise
        self._reading.join(60)

    @property
    def output(self) -> str:
        """All that it has printed."""
        return b"".join(self._pieces).decode(errors="replace")

    def wait_for(self, words: str) -> None:
        """Wait until it has printed this."""
        wait_until(lambda: words in self.output or not self._reading.is_alive(), seconds=_SECONDS)
        assert words in self.output, self.output

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _read(self) -> None:
        if self.process.stdout is not None:
            with self.process.stdout as output:
                # not by lines: an answer may have no end of a line
                self._pieces.extend(iter(lambda: os.read(output.fileno(), 1 << 16), b""))


class Reader:
    """Runs blocks in a folder, exactly as they are written.

    Parameters
    ----------
    entering
        Makes a command one of a private network.
    env
        More variables; PATH comes before the reader's own.
    """

    def __init__(
        self,
        folder: Path,
        entering: Callable[..., list[str]] = lambda *command: list(command),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._entering = entering
        self._env = _environment(env or {})

    def run(self, block: Block) -> str:
        """Run a block to its end; returns what it printed."""
        ran = subprocess.run(
            self._command(block),
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"{block}: {ran.stdout}"
        return ran.stdout

    def start(self, block: Block) -> Terminal:
        """Begin a block that goes on until it is interrupted."""
        return Terminal(self._command(block), self._folder, self._env)

    def _command(self, block: Block) -> list[str]:
        if block.language == "python":
            return self._entering(sys.executable, "-c", block.text)
        return self._entering("bash", "-euo", "pipefail", "-c", block.text)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This one, with the environment's programs found, and without settings of the test run."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if name == "QUIRE_CACHE" or not name.startswith(("QUIRE_", "MAKE", "OPENAI_"))
    }
    places = [more.get("PATH", ""), str(Path(sys.executable).parent), os.environ["PATH"]]
    path = os.pathsep.join(filter(None, places))
    return kept | {"PYTHONUNBUFFERED": "1"} | dict(more) | {"PATH": path}
