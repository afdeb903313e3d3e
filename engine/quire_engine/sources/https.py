"""Models at an address: https://host/path/model.gguf.

An address is fetched once: what stays in the cache is served from then on, for a server that
starts again must not silently be another model. Only a digest makes sure what it is.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.addresses import redacted
from quire_engine.sources.base import ResolvedModel, digest
from quire_engine.sources.cache import cache_folder, exclusive, storing
from quire_engine.sources.part import Part
from quire_engine.sources.shelf import Shelf
from quire_engine.sources.transfer import Advice, Remote, Transfer

_MAGIC = b"GGUF"
_ADVICE = Advice(
    network="check the network and HTTPS_PROXY, or give the path of a model file",
    credentials="the address needs a user and password, or a newer signature",
    missing="check the address",
    other="check the address",
)


def resolve_https(
    source: str,
    sha256: str | None,
    progress: Progress,
    environment: Mapping[str, str],
    *,
    max_bytes: int,
) -> ResolvedModel:
    """Find the file in the cache, or fetch it; several processes fetch it once.

    Parameters
    ----------
    sha256
        The digest it must have. A file in the cache with another one is fetched anew, and without
        a digest plain http:// is refused.
    max_bytes
        Larger files are refused.

    Raises
    ------
    SourceError
        The server does not have it, the network or the disk fails, or the digest differs.
    """
    name = _file_name(source, sha256)
    shelf = Shelf(_folder(cache_folder(environment), source))
    wanted = None if sha256 is None else sha256.lower()
    with storing(shelf.folder):
        if found := _cached(shelf, name, wanted, progress):
            return found
        with exclusive(
            shelf.folder, lambda: progress("waiting for another process's download", 0.0)
        ):
            if found := _cached(shelf, name, wanted, progress):
                return found
            remote = Remote(
                url=source, name=name, max_bytes=max_bytes, is_verified=wanted is not None
            )
            certificates = environment.get("SSL_CERT_FILE")
            is_tls = source.lower().startswith("https:")
            with Transfer(_ADVICE, certificates=certificates, requires_tls=is_tls) as transfer:
                _fetch(transfer, remote, shelf, wanted, progress)
            found = _cached(shelf, name, wanted, progress)
    if found is None:
        raise SourceError(f"{shelf.folder} changed while the model was stored there: try again")
    return found


def _cached(
    shelf: Shelf, name: str, wanted: str | None, progress: Progress
) -> ResolvedModel | None:
    record = shelf.record(name)
    if record is None or (wanted is not None and record.sha256 != wanted):
        return None
    return shelf.find(name, wanted, progress)


def _fetch(
    transfer: Transfer, remote: Remote, shelf: Shelf, wanted: str | None, progress: Progress
) -> None:
    part = Part(shelf.folder / "download.part")
    is_resumed = part.path.exists()
    transfer.download(remote, part, progress)
    found = digest(part.path, progress, f"checking {remote.name}")
    if wanted is not None and found != wanted and is_resumed:
        part.remove()
        transfer.download(remote, part, progress)
        found = digest(part.path, progress, f"checking {remote.name}")
    try:
        _require_wanted(remote, found, wanted)
        _require_gguf(remote, part.path)
        shelf.adopt(part.path, remote.name, found)
    finally:
        part.remove()
    if wanted is None:
        progress(f"{remote.name} has SHA-256 {found}; --sha256 pins it", 1.0)


def _require_wanted(remote: Remote, found: str, wanted: str | None) -> None:
    if wanted is not None and found != wanted:
        raise SourceError(
            f"{redacted(remote.url)} arrived with SHA-256 {found}, but {wanted} was asked for: "
            "nothing was kept; correct --sha256, or find the address of that version"
        )


def _require_gguf(remote: Remote, path: Path) -> None:
    with path.open("rb") as file:
        begin = file.read(40)
    if not begin.startswith(_MAGIC):
        raise SourceError(
            f"{redacted(remote.url)} is no GGUF file, for it begins with {begin!r}: nothing was "
            "kept; give the address of the file itself, not of a page about it"
        )


def _file_name(source: str, sha256: str | None) -> str:
    parts = urlsplit(source)
    if parts.scheme.lower() == "http" and sha256 is None:
        raise SourceError(
            f"{redacted(source)} is not encrypted, so anyone between may change the model: give "
            "an https:// address, or --sha256 as well"
        )
    name = unquote(parts.path.rsplit("/", 1)[-1])
    if not parts.hostname or not name.endswith(".gguf") or "/" in name or "\0" in name:
        raise SourceError(
            f"{redacted(source)} is not https://host/path/file.gguf: over https, models are single "
            "GGUF files; for a folder give hf://org/repo@revision, or a path"
        )
    return name


def _folder(root: Path, source: str) -> Path:
    parts = urlsplit(source)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return root / "models" / "https" / (parts.hostname or "") / name
