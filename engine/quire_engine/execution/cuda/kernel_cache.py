"""Where compiled kernels are kept, and what was compiled ahead.

    $QUIRE_CACHE/kernels/triton     what Triton compiled here, or took from a pack
    $QUIRE_KERNELS                  a pack, or a folder of them: `quire kernels` makes them

Triton keeps more of a compilation than it ever reads again; only binaries are kept here.
"""

import functools
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from quire_engine.errors import QuireError
from quire_engine.sources.cache import cache_folder
from quire_kernels.compiled.packs import SUFFIX, PackError, install_pack

PACKS_VARIABLE = "QUIRE_KERNELS"
_log = logging.getLogger(__name__)


def prepare_kernels(arch: str, environment: Mapping[str, str] = os.environ) -> None:
    """Choose Triton's cache and fill it from the packs; what fails is logged, and no more.

    Parameters
    ----------
    arch
        The device's, `sm90` say.
    """
    cache = use_cache(environment)
    if cache is None:
        return
    for pack in find_packs(environment, arch):
        try:
            count = install_pack(pack, arch, cache)
        except PackError as error:
            _log.warning("compiled kernels of %s are not used: %s", pack, error)
        except OSError as error:
            _log.warning("compiled kernels of %s cannot be kept in %s: %s", pack, cache, error)
        else:
            _log.info("%d compiled kernels of %s are used", count, pack)


def use_cache(environment: Mapping[str, str]) -> Path | None:
    """Make Triton keep its kernels in quire's cache, unless it was told where; returns where.

    Where that cannot be written they are in a temporary folder, or, without one, None: then Triton
    compiles where it would by itself.
    """
    from triton import knobs

    if chosen := environment.get("TRITON_CACHE_DIR"):
        return Path(chosen)
    try:
        cache = cache_folder(environment) / "kernels" / "triton"
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache) as file:  # it may be there and read-only, or full
            file.write(bytes(1 << 16))
    except (OSError, QuireError) as error:
        _log.warning("compiled kernels cannot be kept for the next start: %s", error)
        try:
            cache = Path(_temporary_folder().name)
        except OSError:
            return None
    knobs.cache.dir = str(cache)
    knobs.compilation.store_binary_only = True
    return cache


def kernels_folder() -> str:
    """Where Triton keeps what it compiles in this process."""
    from triton import knobs

    folder: str = knobs.cache.dir
    return folder


def find_packs(environment: Mapping[str, str], arch: str) -> list[Path]:
    """The packs that the environment names; of a folder, those of the architecture."""
    named = environment.get(PACKS_VARIABLE)
    if not named:
        return []
    try:
        path = Path(named).expanduser()
        if path.is_file():
            return [path]
        if not path.is_dir():
            _log.warning("%s is %s, where is neither a pack nor a folder", PACKS_VARIABLE, path)
        packs = sorted(path.glob(f"*{SUFFIX}"))
    except (OSError, RuntimeError) as error:  # no permission; ~ of a user who is none
        _log.warning("compiled kernels of %s are not used: %s", named, error)
        return []
    fitting = [pack for pack in packs if pack.name.startswith(f"{arch}-")]
    if packs and not fitting:
        _log.info("of the %d packs in %s none is of %s", len(packs), path, arch)
    return fitting


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """The cache of a process that can write no other; it goes with the process."""
    return tempfile.TemporaryDirectory(prefix="quire-kernels-")
