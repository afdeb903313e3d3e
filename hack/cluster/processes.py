"""A cluster's processes: started with a mark in their environment, and found again by it.

Nothing about processes is written down, so that nothing can be out of date: whatever was killed,
a look at /proc tells which processes of which cluster there are.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.cluster.errors import ClusterError

_MARK = "QUIRE_CLUSTER"
_ROLE = "QUIRE_CLUSTER_ROLE"
_POLL_SECONDS = 0.05
_EXEC_SECONDS = 5.0
"""How long a process may take to become another program; milliseconds, but on a starved machine."""
_ENVIRONMENT_END = 50
"""Index of the field in /proc/PID/stat, counted from 0, as proc(5) has it (env_end)."""
_LAST_BYTES = 1500
_COMMAND_LENGTH = 15


@dataclass(frozen=True)
class RunningProcess:
    """One that bears a cluster's mark."""

    pid: int
    role: str
    """Where it runs and its program's name, such as `etcd` or `node-1/kubelet`."""
    command: str
    """The kernel's name of it: the first 15 characters of the program's."""

    @property
    def is_program(self) -> bool:
        """Whether it is what its role says, and not what starts that or was started by it."""
        return self.command == self.role.rpartition("/")[2][:_COMMAND_LENGTH]


@dataclass(frozen=True)
class Launcher:
    """Starts a cluster's processes.

    Parameters
    ----------
    mark
        What its processes are found by: the path of its folder.
    logs
        Folder for what they print.
    ends_with_parent
        They are killed when this process ends, however it ends: for tests.
    """

    mark: Path
    logs: Path
    ends_with_parent: bool
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self,
        role: str,
        command: Sequence[str | Path],
        *,
        environment: dict[str, str] | None = None,
        keep_open: Iterable[int] = (),
    ) -> None:
        """Start a process that goes on when this one ends; what it prints goes to its log."""
        log = self.logs / f"{role.replace('/', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        wrapper = ("setpriv", "--pdeathsig", "KILL", "--") if self.ends_with_parent else ()
        with log.open("ab") as output:
            child = subprocess.Popen(
                [*wrapper, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(keep_open),
                env=_plain_environment() | (environment or {}) | self._marks(role),
            )
        self._children.append(child)

    def kill(self, *roles: str) -> None:
        """Kill the processes of these roles, or all, and wait until they are gone.

        What they start until they end is found by the next look.
        """
        while doomed := [p for p in self.running() if not roles or p.role in roles]:
            kill(doomed, self.mark)
            killed = {process.pid for process in doomed}
            for child in self._children:
                if child.pid in killed:
                    child.wait()
        self._children[:] = [child for child in self._children if child.poll() is None]

    def running(self) -> list[RunningProcess]:
        """Those of this cluster's processes that there are."""
        return running_with(self.mark)

    def is_running(self, role: str) -> bool:
        """Whether a process of this role is there."""
        return any(process.role == role and process.is_program for process in self.running())

    def wait_for(
        self, what: str, condition: Callable[[], bool], roles: Iterable[str], seconds: float = 120
    ) -> None:
        """Wait until a condition holds, as long as the processes of these roles are there.

        Raises
        ------
        ClusterError
            One has ended, or time is over: with the end of their logs.
        """
        deadline = time.monotonic() + seconds
        wanted = set(roles)
        while not condition():
            ended = wanted - {process.role for process in self.running()}
            if ended or time.monotonic() > deadline:
                why = f"{', '.join(sorted(ended))} ended" if ended else f"not in {seconds:.0f} s"
                raise ClusterError(f"{what}: {why}\n{self._last_words(ended or wanted)}")
            time.sleep(_POLL_SECONDS)

    def _marks(self, role: str) -> dict[str, str]:
        return {_MARK: str(self.mark), _ROLE: role}

    def _last_words(self, roles: Iterable[str]) -> str:
        parts = []
        for role in sorted(roles):
            log = self.logs / f"{role.replace('/', '-')}.log"
            with contextlib.suppress(OSError):
                parts.append(
                    f"--- {log}\n{log.read_bytes()[-_LAST_BYTES:].decode(errors='replace')}"
                )
        return "\n".join(parts)


def running_with(mark: Path) -> list[RunningProcess]:
    """Every process that bears this mark, and whose environment may be read."""
    found = (_look_at(entry, mark) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process for process in found if process is not None]


def kill(processes: Iterable[RunningProcess], mark: Path, seconds: float = 60) -> None:
    """Kill processes and wait until they are gone.

    Raises
    ------
    ClusterError
        One does not end: it hangs in the kernel.
    """
    doomed = list(processes)
    for process in doomed:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            # looked at again behind the handle: the number could be another process's by now
            if not _has_ended(process.pid, mark):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
    deadline = time.monotonic() + seconds
    while left := [process for process in doomed if not _has_ended(process.pid, mark)]:
        if time.monotonic() > deadline:
            names = ", ".join(f"{process.role} (process {process.pid})" for process in left)
            raise ClusterError(f"does not end: {names}")
        time.sleep(_POLL_SECONDS)


def require(program: str) -> str:
    """Path of one of the machine's programs.

    Raises
    ------
    ClusterError
        It is not installed.
    """
    folders = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    if (path := shutil.which(program, path=folders)) is None:
        raise ClusterError(f"{program} is not installed")
    return path


def _plain_environment() -> dict[str, str]:
    """Nothing of the caller's but where programs are: proxies and tokens stay outside."""
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin", "HOME": "/"}


def _look_at(entry: Path, mark: Path) -> RunningProcess | None:
    try:
        variables = dict(
            part.split("=", 1) for part in _environment(entry).split("\0") if "=" in part
        )
        if variables.get(_MARK) != str(mark):
            return None
        command = (entry / "comm").read_text().strip()
    except OSError:
        return None  # it has just ended, or is another user's
    return RunningProcess(int(entry.name), variables.get(_ROLE, ""), command)


def _environment(entry: Path) -> str:
    """What the process was started with; waits for one that is becoming another program.

    Between the old program and the new there is no environment to read, and so no mark: whoever
    looked just then would miss a process that is there.
    """
    deadline = time.monotonic() + _EXEC_SECONDS
    before = _settled_environment(entry)
    while not (text := (entry / "environ").read_text(errors="replace")):
        after = _settled_environment(entry)
        if (after is not None and after == before) or time.monotonic() > deadline:
            break  # it was there before and after, and is empty
        before = after
        time.sleep(0.001)
    return text


def _settled_environment(entry: Path) -> str | None:
    """Where its environment ends, or None while it becomes another program and there is none.

    What has ended and the kernel's own threads have no memory, and so none for good.
    """
    state, parent, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
    end = fields[_ENVIRONMENT_END - 4]  # without the two before the state, and these two
    has_memory = state not in "ZX" and parent != "2" and entry.name != "2"
    return None if has_memory and end == "0" else end


def _has_ended(pid: int, mark: Path) -> bool:
    """Whether it is gone; one that waits for its parent to notice has no environment any more."""
    return _look_at(Path("/proc") / str(pid), mark) is None
