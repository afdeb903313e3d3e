"""The library for processors that are not here: `python -m quire_kernels.cpu.ahead`.

    quire_kernels/cpu/compiled
    └── VARIANT-KEY.so      KEY is a hash of sources and flags

Images are built so, as they have no compiler. The first variant that the processor can run is
taken; what was compiled from other sources is not.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from quire_kernels.cpu.build import (
    FLAGS,
    BuildError,
    Recipe,
    compile_library,
    find_compiler,
    hash_sources,
)
from quire_kernels.cpu.processor import list_features

_log = logging.getLogger(__name__)
FOLDER = Path(__file__).parent / "compiled"

_V3 = ("avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "xsave")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


@dataclass(frozen=True)
class Variant:
    """Processors of a kind, for which one library does."""

    name: str
    flags: tuple[str, ...]
    """The compiler's."""
    needs: tuple[str, ...]
    """What /proc/cpuinfo has to name."""

    @property
    def file_name(self) -> str:
        """Name of the library; other sources or flags make another."""
        digest = hashlib.sha256()
        hash_sources(digest)
        for flag in (*FLAGS, *self.flags):
            digest.update(flag.encode() + b"\0")
        return f"{self.name}-{digest.hexdigest()[:24]}.so"


VARIANTS = {
    "x86_64": (
        Variant("avx512-vnni", ("-march=x86-64-v4", "-mavx512vnni"), (*_V4, "avx512_vnni")),
        Variant("avx-vnni", ("-march=x86-64-v3", "-mavxvnni"), (*_V3, "avx_vnni")),
        Variant("avx2", ("-march=x86-64-v3",), _V3),
    )
}
"""Of a machine's name, the fastest first."""


@functools.cache
def find_library(folder: Path = FOLDER) -> Path | None:
    """The fastest library that was compiled ahead and runs here; None without one.

    The log says which is used, and that none can be.
    """
    if not folder.is_dir():
        return None
    features = list_features()
    for variant in VARIANTS.get(platform.machine(), ()):
        path = folder / variant.file_name
        if features.issuperset(variant.needs) and path.is_file():
            _log.info("CPU kernels compiled ahead are used: %s", path)
            return path
    _log.warning(
        "CPU kernels compiled ahead in %s are not used: none is of these sources and for this "
        "processor",
        folder,
    )
    return None


def compile_all(folder: Path) -> None:
    """Compile all variants of this machine's architecture into a folder.

    Raises
    ------
    BuildError
        There is no compiler, it fails, or the folder cannot be written.
    """
    compiler = find_compiler()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for variant in VARIANTS.get(platform.machine(), ()):
            started = time.monotonic()
            path = folder / variant.file_name
            compile_library(Recipe(compiler, (*FLAGS, *variant.flags)), path)
            print(f"{path}: compiled in {time.monotonic() - started:.0f} s")
    except OSError as error:
        raise BuildError(f"cannot write into {folder}: {error}") from error


def main(arguments: list[str]) -> int:
    """Compile into the folder that is named, else where `find_library` looks."""
    try:
        compile_all(Path(arguments[0]) if arguments else FOLDER)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
