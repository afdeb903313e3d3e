"""A set of Linux namespaces: a machine of its own for the control plane and for each node.

The first process in it reaps what is left behind; killing it takes everything along: programs,
containers, mounts and network interfaces.
"""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.processes import Launcher

_KINDS = ("--net", "--mount", "--pid", "--uts", "--ipc")
_ENTER = ("-n", "-m", "-p", "-u", "-i")
_RUN_SECONDS = 120


@dataclass(frozen=True)
class Namespaces:
    """One set, known by the first part of its processes' roles."""

    launcher: Launcher
    name: str

    @property
    def init_role(self) -> str:
        """Role of the first process."""
        return f"{self.name}/init"

    def create(self, init: Path) -> bool:
        """Make it if there is none; returns whether it was made."""
        if self._find_init() is not None:
            return False
        # without its first process nothing of it can live, but a wrapper may be about to end
        self.launcher.kill(*self._roles())
        self.launcher.start(
            self.init_role,
            (
                "unshare",
                *_KINDS,
                "--fork",
                "--kill-child=KILL",
                "--mount-proc",
                "--propagation=private",
                init,
            ),
        )
        self.launcher.wait_for(
            self.name, lambda: self._find_init() is not None, (self.init_role,), seconds=30
        )
        return True

    def pid(self) -> int:
        """The first process, as numbered outside.

        Raises
        ------
        ClusterError
            It is not there.
        """
        if (pid := self._find_init()) is None:
            raise ClusterError(f"{self.name} is not running: make cluster-up starts it again")
        return pid

    def inside(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command that runs another one in there; paths have to be absolute."""
        return ["nsenter", "-t", str(self.pid()), *_ENTER, "--", *command]

    def start(
        self,
        program: str,
        command: Sequence[str | Path],
        *,
        environment: dict[str, str] | None = None,
        keep_open: Iterable[int] = (),
    ) -> bool:
        """Start a process in there if it is not running; returns whether it was started."""
        role = f"{self.name}/{program}"
        if self.launcher.is_running(role):
            return False
        self.launcher.start(
            role, self.inside(command), environment=environment, keep_open=keep_open
        )
        return True

    def run(
        self, *command: str | Path, stdin: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in there to its end, whatever comes of it."""
        return subprocess.run(
            self.inside(command),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )

    def run_script(self, script: str) -> None:
        """Run lines of shell in there.

        Raises
        ------
        ClusterError
            One fails: with what it said.
        """
        ran = self.run("/bin/sh", "-eu", stdin=script)
        if ran.returncode != 0:
            raise ClusterError(f"{self.name} cannot be set up: {ran.stderr.strip()}")

    def remove(self) -> None:
        """Kill everything in there."""
        self.launcher.kill(*self._roles())

    def _find_init(self) -> int | None:
        for process in self.launcher.running():
            if process.role == self.init_role and process.is_program:
                return process.pid
        return None

    def _roles(self) -> list[str]:
        own = f"{self.name}/"
        roles = {process.role for process in self.launcher.running()}
        return [role for role in roles if role.startswith(own)] or [self.init_role]
