"""Prometheus' own checker: the machine's, or Debian's, unpacked when it is missing."""

import os
import shutil
import subprocess
from pathlib import Path

_TIMEOUT_SECONDS = 300
_UNPACKED = Path(__file__).parents[2] / "build" / "promtool"


def find_promtool() -> Path | str:
    """The program, or why this machine has none and cannot get one.

    Debian's package is only unpacked: installing it would start a Prometheus.
    """
    if (found := shutil.which("promtool")) is not None:
        return Path(found)
    program = _UNPACKED / "usr" / "bin" / "promtool"
    if not program.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            return "needs promtool, which comes with Prometheus: put it on the PATH"
        problem = _unpack()
        if problem is not None:
            return f"needs promtool, and Debian's cannot be fetched: {problem}"
    return program


def _unpack() -> str | None:
    """Fetch and unpack the package; what went wrong, if anything."""
    _UNPACKED.mkdir(parents=True, exist_ok=True)
    problem = _run("apt-get", "--quiet", "download", "prometheus")
    if problem is not None and os.geteuid() == 0:  # a fresh machine has no lists yet
        problem = _run("apt-get", "--quiet", "update") or _run("apt-get", "download", "prometheus")
    if problem is not None:
        return problem
    [package] = _UNPACKED.glob("prometheus_*.deb")
    return _run("dpkg-deb", "--extract", package.name, ".")


def _run(*command: str) -> str | None:
    done = subprocess.run(
        command, cwd=_UNPACKED, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    )
    return None if done.returncode == 0 else done.stderr.strip()[-500:]
