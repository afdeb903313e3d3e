"""Which files of a repository make a model, and which are never read.

Weights are read from safetensors and GGUF alone: both are data. Pickles (.bin, .pt, .ckpt) can run
code when they are read, and a repository's own Python is never fetched.
"""

import re

from quire_engine.errors import SourceError
from quire_engine.sources.hub import HubFile

SETTINGS = frozenset(
    {
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "config.json",
        "generation_config.json",
        "merges.txt",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    }
)
"""What is fetched besides weights, where it is there."""
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
_UNSAFE = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".onnx")


def choose_file(files: tuple[HubFile, ...], name: str, repo: str) -> HubFile:
    """The one GGUF file that was asked for.

    Raises
    ------
    SourceError
        It is not there, or no GGUF file.
    """
    if not name.endswith(".gguf"):
        raise SourceError(
            f"{name} is no .gguf file: leave it out to serve the repository's safetensors, or "
            f"name one of {_some(_ggufs(files)) or 'those of a repository that has some'}"
        )
    for file in files:
        if file.name == name:
            return file
    there = _some(_ggufs(files))
    raise SourceError(f"{repo} has no file {name}; its .gguf files: {there or 'none'}")


def choose_model(files: tuple[HubFile, ...], repo: str) -> tuple[HubFile, ...]:
    """The files of a model folder, or the only GGUF file of a repository without one.

    Raises
    ------
    SourceError
        There are no weights in a safe format, or several GGUF files to choose from.
    """
    names = {file.name for file in files}
    if _INDEX in names:
        weights = {name for name in names if _SHARD.fullmatch(name)} | {_INDEX}
    else:
        weights = names & {"model.safetensors"}
    if weights:
        wanted = weights | (names & SETTINGS)
        return tuple(file for file in files if file.name in wanted)
    ggufs = _ggufs(files)
    if len(ggufs) == 1:
        return tuple(file for file in files if file.name == ggufs[0])
    if ggufs:
        raise SourceError(f"{repo} has several models; add one to the source: {_some(ggufs)}")
    raise SourceError(_no_weights(names, repo))


def _no_weights(names: set[str], repo: str) -> str:
    unsafe = sorted(name for name in names if name.endswith(_UNSAFE))
    if unsafe:
        return (
            f"{repo} has weights only as {_some(unsafe)}, which is not read because such files can "
            "run code or are not supported: choose a repository with .safetensors or .gguf"
        )
    return f"{repo} has neither model.safetensors nor a .gguf file: choose another repository"


def _ggufs(files: tuple[HubFile, ...]) -> list[str]:
    return sorted(file.name for file in files if file.name.endswith(".gguf"))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
