"""Find a launch configuration: shipped table first, then the tables tuned on this machine.

A table is JSON, `{operation: [{"match": {...}, "config": {...}}, ...]}`; the first entry whose
`match` agrees with the shape wins, so special shapes stand before general ones. A `config` of null
says that no kernel of ours is the fastest.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypedDict

from quire_kernels.errors import UnsupportedError

_log = logging.getLogger(__name__)

SHIPPED = ("sm80", "sm86", "sm89", "sm90")


class Entry(TypedDict):
    """A shape, or some of its numbers, and what to launch for it."""

    match: dict[str, int]
    config: dict[str, int] | None


Table = dict[str, list[Entry]]


@dataclass(frozen=True)
class LaunchConfig:
    """Tile and launch sizes of one kernel."""

    block_m: int
    """Rows of the output tile (query tokens x heads of a group in attention)."""

    block_n: int
    """Columns of a step: key tokens in attention, output features in a matmul."""

    num_warps: int
    """Warps per program."""

    num_stages: int
    """Depth of the load pipeline."""

    programs_per_sm: int = 1
    """Programs that fit a multiprocessor at once; the wave arithmetic counts with it."""

    block_k: int = 0
    """Depth of a matmul step; unused elsewhere."""

    splits: int = 1
    """Programs that share the depth of one matmul tile; in decode attention ranges of a context,
    where 1 leaves their number to the wave arithmetic; unused elsewhere."""

    def __post_init__(self) -> None:
        for name, size in asdict(self).items():
            if type(size) is not int or size < (name != "block_k"):
                raise ValueError(f"{name} of a kernel's tiles is {size!r}")


def cache_path(arch: str) -> Path:
    """Where this machine's own measurements of `arch` are kept."""
    chosen = os.environ.get("QUIRE_CACHE")
    root = Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "quire"
    return root / f"tuning-{arch}.json"


@functools.cache
def shipped_table(arch: str) -> Table:
    """The table of an architecture that was tuned before release."""
    text = resources.files("quire_kernels.tuning").joinpath(f"{arch}.json").read_text("utf-8")
    table: Table = json.loads(text)
    return table


_TUNED: dict[str, Table] = {}
"""What this process tuned, by architecture: a disk that takes no file must not end it."""


def read_cache(arch: str) -> Table:
    """What was tuned on this machine before; empty when nothing was, or the file is damaged."""
    path = cache_path(arch)
    try:
        return _checked(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("tiles tuned before cannot be read from %s: %s", path, error)
        return {}


def _checked(table: Any) -> Table:  # noqa: ANN401 - it is somebody's JSON
    """The table, if it is one; raises ValueError."""
    try:
        for entries in table.values():
            for entry in entries:
                entry["match"].items()
                LaunchConfig(**entry["config"])
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no table of tiles: {error}") from error
    found: Table = table
    return found


def remember(arch: str, operation: str, shape: dict[str, int], config: LaunchConfig) -> None:
    """Add one measurement to this machine's table, by rename so that readers see whole files.

    It stands before all others, and in place of an earlier one of the shape.
    """
    table = _TUNED.setdefault(arch, read_cache(arch))
    others = [entry for entry in table.get(operation, ()) if entry["match"] != shape]
    table[operation] = [{"match": shape, "config": asdict(config)}, *others]
    find.cache_clear()
    path = cache_path(arch)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as partial:
            partial.write(json.dumps(table, indent=1))
        Path(partial.name).replace(path)
    except OSError as error:
        _log.warning("tuned tiles cannot be kept in %s for the next start: %s", path, error)


def _first_match(table: Table, operation: str, shape: dict[str, int]) -> LaunchConfig | None:
    for entry in table.get(operation, []):
        if all(shape.get(name) == value for name, value in entry["match"].items()):
            return None if entry["config"] is None else LaunchConfig(**entry["config"])
    return None


@functools.lru_cache(maxsize=4096)
def find(arch: str, operation: str, shape: tuple[tuple[str, int], ...]) -> LaunchConfig | None:
    """The configuration for a shape, or None on an architecture that was never tuned."""
    if arch == "interpreter":
        splits = 2 if operation == "linear" else 1
        return LaunchConfig(32, 32, num_warps=4, num_stages=1, block_k=32, splits=splits)
    table = shipped_table(arch) if arch in SHIPPED else _TUNED.get(arch) or read_cache(arch)
    return _first_match(table, operation, dict(shape))


def lookup(arch: str, operation: str, **shape: int) -> LaunchConfig:
    """The configuration for a shape.

    Raises
    ------
    UnsupportedError
        The architecture is neither shipped nor tuned here yet.
    """
    config = find(arch, operation, tuple(sorted(shape.items())))
    if config is None:
        raise UnsupportedError(
            f"{operation} has no configuration for {shape} on {arch}; shipped: "
            f"{', '.join(SHIPPED)}; run quire_kernels.tuning.search.tune_attention first"
        )
    return config
