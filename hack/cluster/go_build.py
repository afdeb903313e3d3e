"""One call of `go build`, with its progress told."""

import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hack.cluster.catalogue import GoTool
from hack.cluster.errors import ClusterError, ModulesUnavailableError
from hack.cluster.go import find_go

_TELL_SECONDS = 15.0
_LAST_LINES = 30


def build(tool: GoTool, into: Path, cache: Path, say: Callable[[str], None]) -> None:
    """Build a tool's programs into a folder.

    Parameters
    ----------
    cache
        Folder for what Go compiles: a build that goes on with it starts where the last one ended.

    Raises
    ------
    ClusterError
        Go is missing, its modules cannot be fetched, or they do not compile.
    """
    go = find_go()
    into.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    environment = _environment(go, cache)
    if tool.packages:
        _compile(go, tool, into, environment, say)
    else:
        _fetch(go, tool, environment, "mod", "download", tool.module)
    module = _run(go, tool, environment, "list", "-m", "-f", "{{.Dir}}", tool.module).strip()
    for name in tool.files:
        target = into / Path(name).name
        target.write_bytes((Path(module) / name).read_bytes())


def _compile(
    go: Path, tool: GoTool, into: Path, environment: dict[str, str], say: Callable[[str], None]
) -> None:
    packages = _fetch(go, tool, environment, "list", "-deps", *tool.packages)
    total = len(packages.splitlines())
    # one program gets its name, which need not be its package's; several go by theirs
    output_path = f"{into}/" if len(tool.programs) > 1 else str(into / tool.programs[0])
    flags = ("-v", "-trimpath", "-ldflags", tool.linker_flags, "-o", output_path)
    # a build that is not waited for any more would go on for minutes
    wrapper = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
    with subprocess.Popen(
        [*wrapper, go, "build", *flags, *tool.packages],
        cwd=tool.go_mod.parent,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stderr is None:
            raise RuntimeError("bug: no pipe")
        try:
            output = _follow(process.stderr, f"{tool.name} {tool.version}", total, say)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(tool, "\n".join(output[-_LAST_LINES:]))


def _fetch(go: Path, tool: GoTool, environment: dict[str, str], *arguments: str) -> str:
    """What Go prints for a command that first fetches all modules that are missing."""
    try:
        return _run(go, tool, environment, *arguments)
    except ClusterError as error:
        raise ModulesUnavailableError(str(error)) from error


def _environment(go: Path, cache: Path) -> dict[str, str]:
    own = {
        "CGO_ENABLED": "0",
        "GOCACHE": str(cache),
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    return os.environ | own


def _run(go: Path, tool: GoTool, environment: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [go, *arguments],
        cwd=tool.go_mod.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise _failure(tool, ran.stderr.strip())
    return ran.stdout


def _follow(stream: IO[str], name: str, total: int, say: Callable[[str], None]) -> list[str]:
    """Read what Go prints, a package a line, and tell now and then how far it is."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            lines.put(line.rstrip())
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    output: list[str] = []
    started = told_at = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_TELL_SECONDS)
        except queue.Empty:
            line = ""
        if line is None:
            return output
        if line:
            output.append(line)
        now = time.monotonic()
        if now - told_at >= _TELL_SECONDS:
            told_at = now
            say(f"{name}: {len(output):,} of {total:,} packages, {now - started:.0f} s")


def _failure(tool: GoTool, words: str) -> ClusterError:
    return ClusterError(
        f"{tool.name} {tool.version} cannot be built: {words[-3000:]}\n"
        "Go fetches modules by GOPROXY; programs built elsewhere are taken from the folder that "
        "KUBEBUILDER_ASSETS names."
    )
