"""Starting `quire up` for tests, and looking at what it started."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from tests.api.servers import is_alive, wait_until

_URL = re.compile(r"OpenAI's API is at (http://\S+)/v1")
_PAGE = re.compile(r"the live page is at (http://\S+)/;")
_SHAPE = "qwen3-0.6b"


def resource(name: str = "chat", **spec: Any) -> dict[str, Any]:
    """A service whose engines are simulated, in steps that take no time."""
    simulation = {"gpu": "l4", "modelShape": _SHAPE}
    fields: dict[str, Any] = {
        "model": {"source": "hf://acme/thing@main", "maxModelLen": 4096},
        "engine": {"drainSeconds": 2, "extraArgs": ["--simulated-step-seconds=0.001"]},
        "accelerators": [{"name": "simulated", "simulate": simulation}],
    }
    return {
        "apiVersion": "serving.quire.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": fields | spec,
    }


def secret(name: str, **values: str) -> dict[str, Any]:
    """A Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": values,
    }


class RunningUp:
    """`quire up` on these documents, with everything on free ports.

    Parameters
    ----------
    folder
        Of a test's own: the file, and quire's cache with the private folder of the run.
    program
        Another module that takes the same flags.
    env
        More variables, or others.
    """

    def __init__(
        self,
        folder: Path,
        *documents: dict[str, Any],
        flags: tuple[str, ...] = (),
        program: str = "quire_local.cli",
        env: dict[str, str] | None = None,
    ) -> None:
        self.file = folder / "services.yaml"
        self.cache = folder / "cache"
        if documents:
            self.write(*documents)
        command = ["up"] if program == "quire_local.cli" else []
        given = ("-f", str(self.file)) if documents or self.file.exists() else ()
        kept = {name: text for name, text in os.environ.items() if not name.startswith("QUIRE_")}
        ports = ("--port", "0", "--page-port", "0")
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, *command, *given, *ports, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=kept | {"QUIRE_CACHE": str(self.cache), "PYTHONUNBUFFERED": "1"} | (env or {}),
            start_new_session=True,
        )
        self.lines: list[str] = []
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
        self.process.kill()
        self.process.wait()
        self._reading.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def output(self) -> str:
        """All that it has printed."""
        return "".join(self.lines)

    @property
    def url(self) -> str:
        """Of clients, once it has been announced."""
        return self._find(_URL)

    @property
    def page_url(self) -> str:
        """Of the live page."""
        return self._find(_PAGE)

    def write(self, *documents: dict[str, Any]) -> None:
        """Put other documents into the file, at once as editors do."""
        new = self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump_all(documents))
        new.replace(self.file)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed this."""
        wait_until(lambda: text in self.output or self.process.poll() is not None)
        assert text in self.output, self.output

    def snapshot(self) -> dict[str, Any]:
        """What the live page shows."""
        answer = httpx.get(f"{self.page_url}/snapshot", timeout=60)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def service(self, name: str = "chat") -> dict[str, Any]:
        """One service of it."""
        services = self.snapshot()["services"]
        found: dict[str, Any] = next((one for one in services if one["name"] == name), {})
        return found

    def condition(self, kind: str, name: str = "chat") -> tuple[str, str]:
        """Status and reason of a condition."""
        several = self.service(name).get("conditions", [])
        return next((one["status"], one["reason"]) for one in several if one["type"] == kind)

    def wait_until_ready(self, *names: str) -> None:
        """Wait until these services are Ready."""
        for name in names or ("chat",):
            wait_until(
                lambda name=name: (  # type: ignore[misc]
                    bool(self.service(name)) and self.condition("Ready", name)[0] == "True"
                ),
            )

    def engines(self, phase: str = "ready", name: str = "chat") -> list[dict[str, Any]]:
        """Engines in this phase."""
        return [one for one in self.service(name)["engines"] if one["phase"] == phase]

    def complete(self, model: str = "chat", **options: Any) -> httpx.Response:
        """Ask for a few tokens."""
        body = {"model": model, "prompt": "Hello", "max_tokens": 3}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=60, **options)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and wait; the exit status is returned."""
        self.process.send_signal(number)
        return self.process.wait(timeout=120)

    def _find(self, pattern: re.Pattern[str]) -> str:
        wait_until(
            lambda: bool(pattern.search(self.output)) or self.process.poll() is not None,
        )
        match = pattern.search(self.output)
        assert match is not None, self.output
        return match[1]

    def _read(self) -> None:
        if self.process.stdout is not None:
            self.lines.extend(iter(self.process.stdout.readline, ""))


def descendants(pid: int) -> set[int]:
    """Process ids of everything that a process has started, directly or not."""
    found: set[int] = set()
    new = {pid}
    while new:
        children = {child for one in new for child in _children(one)}
        new = children - found
        found |= new
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        texts = [(task / "children").read_text() for task in tasks]
    except OSError:
        return []  # it has just ended
    return [int(child) for text in texts for child in text.split()]


def wait_until_gone(pids: set[int]) -> None:
    """Wait until none of these processes is there."""
    wait_until(lambda: not any(map(is_alive, pids)))
