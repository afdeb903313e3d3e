"""Packs: the compiled kernels of one architecture in a file, some 0.5 MB for a model.

    sm90-NAME.kernels.tar.xz
    ├── manifest.json        what they were compiled from and by, and each file's SHA-256
    └── KEY/NAME.cubin, KEY/NAME.json       as in Triton's cache; KEY is its hash of everything

Triton looks for a key and takes no other: a pack that does not fit is of no use, but harmless. The
manifest is there to say why. What a compiler left besides, sources say, is not packed.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import lzma
import re
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from quire_kernels.errors import KernelError

SUFFIX = ".kernels.tar.xz"
_FORMAT = 1
_MANIFEST = "manifest.json"
_GROUP = "__grp__"
_PACKED = (".cubin", ".json")
_NAME = re.compile(r"[A-Za-z0-9_=-]{1,128}/(?!__grp__)[A-Za-z0-9_.-]{1,128}\.(cubin|json)")
"""Of a file in a pack: Triton's key and the kernel's name."""
_MAX_BYTES = 256 << 20
"""Unpacked; a model's kernels are some 8 MB."""


_REASONS = {
    "arch": "it is of {found}, and here is {expected}",
    "triton": "it is of Triton {found}, and here is {expected}",
    "compiler": "it is of another build of Triton than is here: for another Python, say",
    "sources": "its kernels were compiled from other sources than are here",
}


class PackError(KernelError):
    """A pack cannot be used; the message says why."""


@dataclass(frozen=True)
class Identity:
    """What compiled kernels depend on, beside the launches."""

    arch: str
    """`sm90` and the like."""
    triton: str
    """Its version."""
    compiler: str
    """SHA-256 of all that Triton itself hashes: wheels for two Pythons are two compilers to it."""
    sources: str
    """SHA-256 of the kernels' sources."""


def identity_of(arch: str) -> Identity:
    """What kernels compiled here for `arch` would be of."""
    import triton
    from triton.runtime.cache import triton_key

    compiler = hashlib.sha256(triton_key().encode()).hexdigest()
    return Identity(arch, triton.__version__, compiler, _hash_sources())


@functools.cache
def _hash_sources() -> str:
    digest = hashlib.sha256()
    folder = resources.files("quire_kernels.triton")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def write_pack(cache: Path, arch: str, target: Path) -> int:
    """Pack what a Triton cache has for an architecture; returns how many kernels those are.

    Raises
    ------
    PackError
        There is none.
    OSError
        The file cannot be written.
    """
    files = [file for folder in _kernels(cache, arch) for file in sorted(folder.iterdir())]
    contents = {
        f"{file.parent.name}/{file.name}": file.read_bytes()
        for file in files
        if file.suffix in _PACKED and not file.name.startswith(_GROUP)
    }
    if not contents:
        raise PackError(f"{cache} has no compiled kernels of {arch}")
    manifest = {
        "format": _FORMAT,
        **asdict(identity_of(arch)),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    text = json.dumps(manifest, indent=1, sort_keys=True).encode()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:xz", preset=9) as archive:
        for name, data in [(_MANIFEST, text), *sorted(contents.items())]:
            entry = tarfile.TarInfo(name)  # no times, no owners: equal kernels, equal files
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    _write(target, whole.getvalue())
    return sum(name.endswith(".cubin") for name in contents)


def install_pack(file: Path, arch: str, cache: Path) -> int:
    """Bring a pack's kernels into a Triton cache; returns how many it has.

    Safe while others do the same, or compile: files appear whole, and a kernel's last one last.
    What is in the cache and not as it was packed is replaced.

    Raises
    ------
    PackError
        The pack is of something else, or damaged.
    OSError
        The cache cannot be written.
    """
    contents = _read(file, identity_of(arch))
    for name, data in contents.items():
        path = cache / name
        if not (path.is_file() and path.read_bytes() == data):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, data)
    facts = [name for name in contents if name.endswith(".json")]
    for name in facts:
        _write_group(cache / name, [cache / each for each in contents if _is_beside(each, name)])
    return len(facts)


def _kernels(cache: Path, arch: str) -> list[Path]:
    """Folders of kernels that were compiled for an architecture."""
    found = []
    for group in sorted(cache.glob(f"*/{_GROUP}*.json")):
        try:
            facts = json.loads((group.parent / group.name.removeprefix(_GROUP)).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if facts.get("target", {}).get("arch") == int(arch.removeprefix("sm")):
            found.append(group.parent)
    return found


def _read(file: Path, wanted: Identity) -> dict[str, bytes]:
    """Return a pack's files by name, all checked."""
    try:
        with tarfile.open(fileobj=io.BytesIO(_decompress(file)), mode="r:") as archive:
            manifest = _read_manifest(archive)
            _check_identity(manifest, wanted)
            contents = {
                entry.name: _read_entry(archive, entry)
                for entry in archive
                if entry.name != _MANIFEST
            }
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, RecursionError) as error:
        raise PackError(f"it is damaged: {error}") from error
    except OSError as error:
        raise PackError(f"it cannot be read: {error.strerror or error}") from error
    files = manifest["files"]
    if contents.keys() != files.keys():
        raise PackError("it is damaged: its files are not those of its manifest")
    for name, data in contents.items():
        if hashlib.sha256(data).hexdigest() != files[name]:
            raise PackError(f"it is damaged: {name} is not what was packed")
        if not _NAME.fullmatch(name):
            raise PackError(f"it is damaged: {name} is no file of a cache")
    return contents


def _decompress(file: Path) -> bytes:
    """All of a pack, before anything in it is looked at: it may be a bomb."""
    with lzma.open(file) as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise PackError(f"it is no pack: unpacked it has more than {_MAX_BYTES >> 20} MiB")
    return data


def _read_manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    first = archive.next()
    if first is None or first.name != _MANIFEST:
        raise PackError("it has no manifest")
    manifest = json.loads(_read_entry(archive, first))
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise PackError("it has no manifest")
    return manifest


def _check_identity(manifest: dict[str, Any], wanted: Identity) -> None:
    if manifest.get("format") != _FORMAT:
        raise PackError(f"its format is {manifest.get('format')}, and {_FORMAT} is read here")
    for part, expected in asdict(wanted).items():
        if manifest.get(part) != expected:
            found = manifest.get(part)
            raise PackError(_REASONS[part].format(found=found, expected=expected))


def _read_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    if not entry.isreg() or entry.issparse():
        raise PackError(f"it is damaged: {entry.name} is no file of a cache")
    stream = archive.extractfile(entry)
    return b"" if stream is None else stream.read()


def _is_beside(name: str, other: str) -> bool:
    return PurePosixPath(name).parent == PurePosixPath(other).parent


def _write_group(facts: Path, files: list[Path]) -> None:
    """Write the file that makes Triton see a kernel: it has whole paths."""
    group = facts.parent / f"{_GROUP}{facts.name}"
    if not _is_whole(group, files):
        paths = {file.name: str(file) for file in files}
        _write(group, json.dumps({"child_paths": paths}).encode())


def _is_whole(group: Path, files: list[Path]) -> bool:
    """Whether a group has these files, and whatever else it has is there."""
    try:
        known = json.loads(group.read_bytes())["child_paths"]
        paths = [Path(path) for path in known.values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False  # there is none, or a damaged one
    return known.keys() >= {file.name for file in files} and all(path.exists() for path in paths)


def _write(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix="tmp.", delete=False) as file:
        partial = Path(file.name)
        try:
            file.write(data)
            file.flush()
            partial.chmod(0o644)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
