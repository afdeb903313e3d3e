"""Brings the files of one commit into the cache, each checked against the hub's digest."""

import hashlib
from pathlib import Path
from urllib.parse import quote

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.base import CHUNK_BYTES, digest
from quire_engine.sources.cache import require_space
from quire_engine.sources.hub import Hub, HubFile
from quire_engine.sources.part import Part
from quire_engine.sources.shelf import Shelf
from quire_engine.sources.transfer import Advice, Remote, Transfer


def download(
    hub: Hub,
    repo: str,
    commit: str,
    files: tuple[HubFile, ...],
    shelf: Shelf,
    progress: Progress,
) -> None:
    """Fetch those files that are not there yet.

    Raises
    ------
    SourceError
        A file cannot be fetched, or is not the one that the hub names.
    OSError
        The cache cannot be written.
    """
    missing = [file for file in files if shelf.record(file.name) is None]
    require_space(shelf.folder, repo, sum(file.size for file in missing))
    advice = Advice(
        network="check the network, HTTPS_PROXY and HF_ENDPOINT, or give a path",
        credentials=hub.credentials_advice(repo),
        missing="the hub lists the file but does not have it: try again, or check HF_ENDPOINT",
        other="check HF_ENDPOINT",
    )
    is_tls = hub.endpoint.startswith("https:")
    with Transfer(advice, requires_tls=is_tls) as transfer:
        for file in missing:
            remote = Remote(
                url=hub.url(repo, commit, file.name),
                name=file.name,
                size=file.size,
                is_verified=True,
                headers=hub.headers(),
            )
            _download_one(transfer, remote, file, shelf, progress)


def _download_one(
    transfer: Transfer, remote: Remote, file: HubFile, shelf: Shelf, progress: Progress
) -> None:
    part = Part(shelf.folder / f"{quote(file.name, safe='')}.part")
    is_resumed = part.path.exists()
    transfer.download(remote, part, progress)
    if not _is_right(part.path, file) and is_resumed:
        part.remove()
        transfer.download(remote, part, progress)
    if not _is_right(part.path, file):
        found = part.path.stat().st_size
        part.remove()
        raise SourceError(
            f"{file.name} arrived with {found} bytes that are not those of the hub's "
            f"{'SHA-256 ' + file.sha256 if file.sha256 else 'git id ' + str(file.git_id)}: it was "
            "damaged on the way or at the server; nothing was kept of it, try again"
        )
    sha256 = digest(part.path, progress, f"checking {file.name}")
    shelf.adopt(part.path, file.name, sha256)
    part.remove()


def _is_right(path: Path, file: HubFile) -> bool:
    """Whether a file has the content that the hub names."""
    if not path.exists() or path.stat().st_size != file.size:
        return False
    if file.sha256 is not None:
        return _content_digest(path, hashlib.sha256()) == file.sha256.lower()
    if file.git_id is not None:
        # git's own way of naming content; no secret hangs on it
        hasher = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        return _content_digest(path, hasher) == file.git_id.lower()
    return True


def _content_digest(path: Path, hasher: "hashlib._Hash") -> str:
    with path.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()
