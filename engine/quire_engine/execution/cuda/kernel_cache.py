"""Where compiled kernels are kept, and what was compiled ahead.

    $QUIRE_CACHE/kernels/triton     what Triton compiled here, or took from a pack
    $QUIRE_KERNELS                  a pack, or a folder of them: `quire kernels` makes them

Triton keeps more of a compilation than it ever reads again; only binaries are kept here.
"""

import logging
import os
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

    None where no folder can be written: then kernels are compiled where Triton itself would.
    """
    from triton import knobs

    if "TRITON_CACHE_DIR" in environment:
        return Path(environment["TRITON_CACHE_DIR"])
    try:
        cache = cache_folder(environment) / "kernels" / "triton"
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, QuireError) as error:
        _log.warning("compiled kernels cannot be kept for the next start: %s", error)
        return None
    knobs.cache.dir = str(cache)
    knobs.compilation.store_binary_only = True
    return cache


def find_packs(environment: Mapping[str, str], arch: str) -> list[Path]:
    """The packs that the environment names; of a folder, those of the architecture."""
    named = environment.get(PACKS_VARIABLE)
    if not named:
        return []
    path = Path(named).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        _log.warning("%s is %s, where there is neither a pack nor a folder", PACKS_VARIABLE, path)
    return sorted(path.glob(f"{arch}-*{SUFFIX}"))
