"""The one C program that clusters need, compiled by the machine's compiler when it changed."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.folders import cluster_folder
from hack.cluster.processes import require

_SOURCE = Path(__file__).with_name("native") / "init.c"
_FLAGS = ("-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror")


def build_init() -> Path:
    """Path of the static `init`.

    Raises
    ------
    ClusterError
        There is no C compiler, or it cannot link statically.
    """
    digest = hashlib.sha256(_SOURCE.read_bytes() + " ".join(_FLAGS).encode()).hexdigest()[:12]
    program = cluster_folder("tools") / f"init-{digest}" / "init"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = Path(folder) / "init"
        ran = subprocess.run(
            [require("cc"), *_FLAGS, "-o", made, _SOURCE],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise ClusterError(
                f"cc cannot build a static program: {ran.stderr.strip()[-1000:]}\n"
                "Debian and Ubuntu: apt-get install gcc libc6-dev"
            )
        made.replace(program)
    return program
