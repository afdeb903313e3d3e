"""Compiles the C++ sources with the machine's own compiler, once for each kind of processor.

    $QUIRE_CACHE (~/.cache/quire)
    └── kernels
        ├── KEY.so      KEY is a hash of sources, flags, compiler and processor
        └── KEY.lock    held by the one process that compiles; the others wait and then load

The library depends on nothing but the C++ runtime, so that a build takes seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quire_kernels.cpu.processor import describe_processor
from quire_kernels.errors import KernelError

_log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "src"
COMPILERS = ("g++", "clang++", "c++")
_TIMEOUT_SECONDS = 600

FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-pthread",
    "-ffp-contract=off",  # a compiler that fuses here and not there rounds equal sums unequally
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-Wno-psabi",
)
"""Of every library, whatever it is compiled for."""


class BuildError(KernelError):
    """The library cannot be built here; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """How the library is compiled."""

    compiler: str
    flags: tuple[str, ...]

    def key(self) -> str:
        """Hash everything that the result depends on."""
        digest = hashlib.sha256()
        version = _run([self.compiler, "--version"]).splitlines()[0]
        for part in (*self.flags, version, describe_processor()):
            digest.update(part.encode() + b"\0")
        hash_sources(digest)
        return digest.hexdigest()[:24]


def hash_sources(digest: hashlib._Hash) -> None:
    """Put what is compiled into a hash."""
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())


def choose_recipe(*, portable: bool = False) -> Recipe:
    """Find the compiler and the flags for this machine.

    Parameters
    ----------
    portable
        Leave out the code for this processor's own instructions; tests compare the two.

    Raises
    ------
    BuildError
        No compiler is on PATH.
    """
    native = "-mcpu=native" if platform.machine() == "aarch64" else "-march=native"
    return Recipe(find_compiler(), (*FLAGS, "-DQUIRE_PORTABLE" if portable else native))


def find_compiler() -> str:
    """Name a C++ compiler on PATH, or the one that CXX names; raises BuildError without one."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        if shutil.which(name):
            return name
    looked_for = f"{wanted} (from CXX)" if wanted else ", ".join(COMPILERS)
    raise BuildError(f"no C++ compiler: looked on PATH for {looked_for}")


def is_built(recipe: Recipe) -> bool:
    """Whether the library is in the cache: `build` then returns at once."""
    return (_cache_folder() / f"{recipe.key()}.so").exists()


def build(recipe: Recipe) -> Path:
    """Return the compiled library, compiling it unless some process has already.

    Raises
    ------
    BuildError
        The compiler fails, or the cache cannot be written.
    """
    try:
        folder = _cache_folder()
        path = folder / f"{recipe.key()}.so"
        if path.exists():
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with _exclusive(path.with_suffix(".lock")):
            if not path.exists():
                _log.info(
                    "compiling the CPU kernels with %s; later starts find them ready",
                    recipe.compiler,
                )
                started = time.monotonic()
                compile_library(recipe, path)
                _log.info("compiled them in %.1f s: %s", time.monotonic() - started, path)
    except OSError as error:
        raise BuildError(f"cannot keep the compiled kernels: {error}") from error
    return path


def _cache_folder() -> Path:
    chosen = os.environ.get("QUIRE_CACHE")
    try:
        root = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "quire"
    except RuntimeError as error:
        raise BuildError("no home folder for compiled kernels: set QUIRE_CACHE") from error
    return root.absolute() / "kernels"


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Be the only process with this lock; it ends with the process, however that ends."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_library(recipe: Recipe, path: Path) -> None:
    """Compile all sources side by side, link, and put the library in its place at once.

    Raises
    ------
    BuildError
        The compiler fails.
    OSError
        The folder of `path` cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="building-") as name:
        folder = Path(name)

        def compile_one(source: Path) -> str:
            made = str(folder / f"{source.stem}.o")
            _run([recipe.compiler, *recipe.flags, "-c", str(source), "-o", made])
            return made

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sorted(SOURCES.glob("*.cpp"))))
        linked = folder / path.name
        _run([recipe.compiler, *recipe.flags, "-shared", *objects, "-o", str(linked)])
        linked.replace(path)


def _run(command: list[str]) -> str:
    """Return a command's output."""
    try:
        done = subprocess.run(  # noqa: S603 (the compiler that the user's PATH or CXX names)
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} did not run: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise BuildError(f"{command[0]} failed with status {done.returncode}: {lines[0]}")
    return done.stdout
