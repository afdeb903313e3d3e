"""Models of a Hugging Face hub: hf://org/repo@revision[/file.gguf].

A revision is resolved to its commit once per start, and everything is read from that commit. If
the hub cannot be asked, the commit that the revision last was is served from the cache.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from quire_engine.errors import SourceError
from quire_engine.execution.base import Progress
from quire_engine.sources.base import ResolvedModel
from quire_engine.sources.cache import cache_folder, exclusive, replacing, storing
from quire_engine.sources.hf_token import read_token
from quire_engine.sources.shelf import Shelf

if TYPE_CHECKING:
    from quire_engine.sources.hub import Hub, Snapshot

_log = logging.getLogger(__name__)

_FORM = re.compile(
    r"hf://(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(@(?P<revision>[^/\s\\\0]+))?(/(?P<file>[^\\\0]+))?",
    re.ASCII,
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PIN_VARIABLE = "HF_REVISION_PIN"
"""SOURCE=COMMIT: where the source is this, its revision is that commit. Who runs several engines of
one source has them serve the same model by it."""


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """What a source of the form hf:// names."""

    repo: str
    revision: str
    """A branch, a tag or a commit."""
    file: str | None
    """One GGUF file; None is the whole model."""


class _Pin(msgspec.Struct):
    """The commit that a revision last was."""

    commit: str


class _Whole(msgspec.Struct):
    """Names of the files that make the model of a commit; written when all are there."""

    names: list[str]


def parse_hf(source: str) -> HubModel:
    """Read hf://org/repo@revision[/file.gguf]; the revision is main if there is none.

    Raises
    ------
    SourceError
        It has another form, or a path that leaves the repository.
    """
    found = _FORM.fullmatch(source)
    parts = (found["file"] or "x").split("/") if found else [""]
    if found is None or any(part in ("", ".", "..") for part in parts):
        raise SourceError(
            f"{source} is not hf://org/repo@revision or hf://org/repo@revision/file.gguf, such as "
            "hf://HuggingFaceTB/SmolLM2-135M-Instruct@main; write a slash in a revision as %2F"
        )
    revision = unquote(found["revision"] or "main")
    return HubModel(repo=found["repo"], revision=revision, file=found["file"])


def resolve_hf(
    source: str,
    sha256: str | None,
    progress: Progress,
    environment: Mapping[str, str],
    *,
    token_file: str | None,
    max_bytes: int,
) -> ResolvedModel:
    """Find the model in the cache, or fetch it; several processes fetch it once.

    Parameters
    ----------
    sha256
        The digest that the file must have; only for sources that name a file.
    token_file
        Holds the user's token; None looks where the hub's own tools do.
    max_bytes
        A larger model is refused.

    Raises
    ------
    SourceError
        The hub does not have it, or not for this user; the network or the disk fails; a digest
        differs.
    """
    model = _as_pinned(parse_hf(source), source, environment)
    if sha256 is not None and model.file is None:
        raise SourceError("--sha256 is for single files: name one in the source, or remove it")
    root = cache_folder(environment) / "models" / "hf" / model.repo
    with storing(root):
        if _COMMIT.fullmatch(model.revision) and (
            found := _cached(root, model, model.revision, sha256, progress)
        ):
            return found
        from quire_engine.sources.hub import Hub

        hub = Hub(environment, read_token(token_file, environment))
        return _Resolution(root, model, hub, progress, max_bytes).resolve(sha256)


def _as_pinned(model: HubModel, source: str, environment: Mapping[str, str]) -> HubModel:
    pin = environment.get(_PIN_VARIABLE, "")
    pinned_source, _, commit = pin.rpartition("=")
    if pin and not _COMMIT.fullmatch(commit):
        raise SourceError(f"{_PIN_VARIABLE} is {pin!r}: it takes SOURCE=COMMIT of 40 digits")
    return replace(model, revision=commit) if pinned_source == source else model


class _Resolution:
    """One model on its way from a hub into the cache."""

    def __init__(
        self, root: Path, model: HubModel, hub: "Hub", progress: Progress, max_bytes: int
    ) -> None:
        self._root = root
        self._model = model
        self._hub = hub
        self._progress = progress
        self._max_bytes = max_bytes

    def resolve(self, sha256: str | None) -> ResolvedModel:
        """Resolve the revision, then find or fetch its files."""
        from quire_engine.sources.hub import HubUnreachableError

        self._progress(f"looking up {self._model.repo}@{self._model.revision}", 0.0)
        try:
            snapshot = self._hub.look_up(self._model.repo, self._model.revision)
        except HubUnreachableError as error:
            return self._without_hub(error, sha256)
        self._progress(f"{self._model.repo}@{self._model.revision} is {snapshot.commit}", 1.0)
        self._pin(snapshot.commit)
        folder = self._root / snapshot.commit
        found = self._find(snapshot.commit, sha256)
        if found is None:
            with exclusive(
                folder, lambda: self._progress("waiting for another process's download", 0.0)
            ):
                found = self._find(snapshot.commit, sha256)
                if found is None:
                    self._fetch(snapshot, Shelf(folder))
                    found = self._find(snapshot.commit, sha256)
        if found is None:
            raise SourceError(f"{folder} changed while the model was stored there: try again")
        return found

    def _find(self, commit: str, sha256: str | None) -> ResolvedModel | None:
        return _cached(self._root, self._model, commit, sha256, self._progress)

    def _fetch(self, snapshot: "Snapshot", shelf: Shelf) -> None:
        from quire_engine.sources.hf_download import download
        from quire_engine.sources.hf_files import choose_file, choose_model

        model = self._model
        files = (
            choose_model(snapshot.files, model.repo)
            if model.file is None
            else (choose_file(snapshot.files, model.file, model.repo),)
        )
        size = sum(file.size for file in files)
        if size > self._max_bytes:
            raise SourceError(
                f"{model.repo} has {size} bytes, but max_download_bytes is {self._max_bytes}: "
                "raise it, or choose a smaller model"
            )
        download(self._hub, model.repo, snapshot.commit, files, shelf, self._progress)
        if model.file is None:
            whole = _Whole(names=[file.name for file in files])
            with replacing(shelf.folder / "whole.json", shelf.folder) as target:
                target.write(msgspec.json.encode(whole))

    def _without_hub(self, error: Exception, sha256: str | None) -> ResolvedModel:
        """Serve what the revision last was, and say so."""
        commit = _pinned(self._pin_path())
        found = None if commit is None else self._find(commit, sha256)
        if found is None:
            raise SourceError(
                f"cannot ask {self._hub.endpoint} for {self._model.repo} ({error}), and it is not "
                "in the cache: check the network, HTTPS_PROXY and HF_ENDPOINT, or give a path"
            ) from error
        _log.warning(
            "cannot ask %s (%s): serving %s@%s as it was, commit %s",
            self._hub.endpoint,
            error,
            self._model.repo,
            self._model.revision,
            commit,
        )
        return found

    def _pin(self, commit: str) -> None:
        path = self._pin_path()
        if _pinned(path) != commit:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, path.parent) as target:
                target.write(msgspec.json.encode(_Pin(commit=commit)))

    def _pin_path(self) -> Path:
        return self._root / "refs" / f"{quote(self._model.revision, safe='')}.json"


def _pinned(path: Path) -> str | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Pin).commit
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _cached(
    root: Path, model: HubModel, commit: str, sha256: str | None, progress: Progress
) -> ResolvedModel | None:
    """The model of a commit if all of it is in the cache."""
    shelf = Shelf(root / commit)
    if model.file is not None:
        found = shelf.find(model.file, sha256, progress)
        return None if found is None else replace(found, revision=commit)
    try:
        content = (shelf.folder / "whole.json").read_bytes()
        names = msgspec.json.decode(content, type=_Whole).names
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    if not names or any(shelf.record(name) is None for name in names):
        return None
    if len(names) == 1 and names[0].endswith(".gguf"):
        return ResolvedModel(path=shelf.path(names[0]), sha256=None, revision=commit)
    return ResolvedModel(path=shelf.files, sha256=None, revision=commit)
