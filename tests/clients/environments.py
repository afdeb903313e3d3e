"""Environments of the clients, kept in the cache: each its own, for they contradict one another.

What they are made of is pinned twice: the client by its version, all that it needs by a day.
"""

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

from tests.clients.errors import ClientError

REQUIREMENTS = {
    "langchain": ("langchain-openai==1.7.4",),
    "litellm": ("litellm==1.110.2",),
    "instructor": ("instructor==1.17.0",),
    "lm-eval": ("lm-eval[api]==0.4.13",),
}
NEWEST = "2026-11-28"
"""Nothing that was published later is installed."""
_SHARING = frozenset({"lm-eval"})
"""Those that also see this environment's packages, for PyTorch and transformers."""
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
FOLDER = _CACHE / "quire" / "test-tools"
_ROOT = Path(__file__).parents[2]
_SECONDS = 1800


def find_environment(name: str) -> Path:
    """Return the environment's Python, installing what is missing.

    Raises
    ------
    ClientError
        It cannot be installed.
    """
    requirements = REQUIREMENTS[name]
    folder = FOLDER / f"{requirements[0].replace('==', '-')}-{NEWEST}"
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    if not stamp.exists():
        uv = Path(sys.executable).with_name("uv")
        run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder])
        install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
        run([*install, "--exclude-newer", NEWEST, *requirements])
        if name in _SHARING:
            _share(folder)
        stamp.touch()
    return python


def fetch_source(package: str) -> Path:
    """Return the source distribution of an installed package, whose version the lock pins.

    Raises
    ------
    ClientError
        It cannot be fetched.
    """
    name = f"{package}-{importlib.metadata.version(package)}"
    folder = FOLDER / name
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            pip: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet"]
            wanted = name.replace("-", "==")
            run([*pip, "--no-deps", "--no-binary", package, "-d", scratch, wanted])
            with tarfile.open(Path(scratch) / f"{name}.tar.gz") as archive:
                archive.extractall(scratch, filter="data")
            (Path(scratch) / name).rename(folder)
    return folder


def run_module(python: Path, module: str, url: str) -> str:
    """Run one of our checks in an environment; the last line that it prints is returned.

    Raises
    ------
    ClientError
        It failed.
    """
    # its packages are what is tested: of ours it sees this folder's files alone
    output = run([python, "-m", module, f"{url}/v1"], env={"PYTHONPATH": str(_ROOT)})
    return output.strip().splitlines()[-1]


def run(command: list[str | Path], *, env: dict[str, str] | None = None) -> str:
    """Run a program; what it prints is returned.

    Raises
    ------
    ClientError
        It failed.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("QUIRE_")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=kept | (env or {}),
        cwd=_ROOT,
        check=False,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise ClientError(f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def _share(folder: Path) -> None:
    """Let an environment find this one's packages after its own."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
