"""A network of a test's own, with nothing but the loopback: pages may name ports, as they are.

Without root it is made in a user namespace, where the machine allows that.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

# brings lo up, says so, and stays until its standard input ends
_HOLDER = """\
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", b"lo", 0x1, b""))
print("up", flush=True)
sys.stdin.read()
"""
_AS_ROOT = ["unshare", "--net"]
_AS_USER = ["unshare", "--user", "--map-root-user", "--net"]


class PrivateNetwork:
    """Holds the namespace as long as the block lasts."""

    def __enter__(self) -> Self:
        self._holder = subprocess.Popen(
            [*_way(), sys.executable, "-c", _HOLDER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._holder.communicate(timeout=60)

    def entering(self, *command: str) -> list[str]:
        """The command, in this network."""
        users = ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
        return ["nsenter", f"--target={self._holder.pid}", "--net", *users, "--", *command]


def why_no_private_network() -> str | None:
    """Why this machine cannot make one, or None."""
    if not Path("/proc/self/ns/net").exists():
        return "needs Linux: ports that pages name are used in a network namespace"
    try:
        ran = subprocess.run([*_way(), "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "needs unshare, of util-linux"
    return f"cannot make a network namespace: {ran.stderr.strip()}" if ran.returncode else None


def _way() -> list[str]:
    return _AS_ROOT if os.geteuid() == 0 else _AS_USER
