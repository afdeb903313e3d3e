"""Which Chromium tests drive: the machine's own, or Debian's, installed when it is missing."""

import os
import shutil
import subprocess

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_INSTALL_SECONDS = 300


def find_chromium() -> str | None:
    """Path of a browser that is installed, or None."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def why_no_chromium() -> str | None:
    """Why this machine has no browser to drive and cannot get one, or None."""
    if find_chromium() is not None:
        return None
    if shutil.which("apt-get") is None:
        return f"needs Chromium: install it, so that {' or '.join(_NAMES)} is found"
    if os.geteuid() != 0:
        return "needs Chromium: apt-get install chromium, or run as root to have it installed"
    return None


def install_chromium() -> str:
    """Path of a browser; Debian's package is installed if there is none.

    Raises
    ------
    RuntimeError
        It could not be installed; the message has apt's.
    """
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        if (found := find_chromium()) is not None:
            return found
        ran = subprocess.run(
            ["apt-get", "--quiet", *command],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if ran.returncode != 0:
            raise RuntimeError(f"apt-get {' '.join(command)} failed: {ran.stderr[-2000:]}")
    installed = find_chromium()
    if installed is None:
        raise RuntimeError(f"apt-get installed chromium, but none of {_NAMES} is found")
    return installed
