"""Programs out of wheels: a dependency group of pyproject.toml, with the hashes of uv.lock."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hack.cluster.catalogue import PROJECT, WheelTool
from hack.cluster.errors import ClusterError
from hack.cluster.folders import cluster_folder, only_one


def install_group(group: str) -> Path:
    """Return the folder with a group's wheels unpacked, installing them once.

    Raises
    ------
    ClusterError
        uv cannot get them: its words are in the message.
    """
    folder = cluster_folder("tools") / WheelTool(group, (), ()).key
    with only_one(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            _install(group, folder)
    return folder


def _install(group: str, folder: Path) -> None:
    partial = folder.with_name(f"partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    locked = _uv("export", "--frozen", "--only-group", group, "--no-header", "--quiet")
    options = ("--require-hashes", "--no-deps", "--quiet", "--target", str(partial))
    _uv("pip", "install", "--python", sys.executable, *options, "-r", "-", stdin=locked)
    partial.rename(folder)


def _uv(*arguments: str, stdin: str = "") -> str:
    uv = Path(sys.executable).with_name("uv")
    ran = subprocess.run(
        [uv if uv.exists() else "uv", *arguments],
        input=stdin,
        cwd=PROJECT,
        env=os.environ | {"VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise ClusterError(f"uv {' '.join(arguments[:2])} failed: {ran.stderr.strip()[-1500:]}")
    return ran.stdout
