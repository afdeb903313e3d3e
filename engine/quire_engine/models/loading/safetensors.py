"""Weights of a Hugging Face folder: one model.safetensors, or shards named by an index."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from quire_engine.errors import ModelError
from quire_engine.models.facts import hf_spec, read_json
from quire_engine.models.loading.base import WeightSource
from quire_engine.models.tensors import EMBEDDING

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
SUPPORTED_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

_TEXT_PARTS: tuple[Callable[[str], str], ...] = (
    lambda name: f"language_model.{name}",
    lambda name: name.replace("model.", "model.language_model.", 1),
)
"""What tensors are called where the model sees images too: before transformers 4.52, and since."""


class SafetensorsWeights(WeightSource):
    """Reads tensors out of mapped safetensors files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(hf_spec(folder), folder.name)
        named = _read_index(folder)
        shards = sorted({*named.values()}) or [SINGLE_NAME]
        self._shards = {shard: _open(folder / shard) for shard in shards}
        self._shard_of = {
            name: shard
            for shard, opened in self._shards.items()
            for name in opened.keys()  # noqa: SIM118
        }
        for name, shard in named.items():
            if self._shard_of.get(name) != shard:
                raise ModelError(
                    f"{self.origin}: {INDEX_NAME} has tensor {name} in {shard}, which does not "
                    "have it: fetch the model again"
                )

        self._rename: Callable[[str], str] = next(
            (rename for rename in _TEXT_PARTS if rename(EMBEDDING) in self._shard_of), str
        )

    def stored_shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape, or None."""
        name = self._rename(name)
        shard = self._shard_of.get(name)
        if shard is None:
            return None
        return tuple(self._shards[shard].get_slice(name).get_shape())

    def read_stored(self, name: str, rows: slice | None) -> torch.Tensor:
        """Return a tensor, or some of its rows, in the files' type."""
        name = self._rename(name)
        shard = self._shards[self._shard_of[name]]
        stored = shard.get_slice(name)
        kind = stored.get_dtype()
        if kind not in SUPPORTED_TYPES:
            raise ModelError(
                f"{self.origin}: tensor {name} has type {kind}, which is not supported; supported "
                f"are {', '.join(SUPPORTED_TYPES)}"
            )
        tensor: torch.Tensor = shard.get_tensor(name) if rows is None else stored[rows]
        return tensor


def _read_index(folder: Path) -> dict[str, str]:
    """Return each tensor's file as the index names it; nothing where one file has them all.

    Raises
    ------
    ModelError
        There are no weights, the index is damaged, or it names a file that is missing or elsewhere.
    """
    index = folder / INDEX_NAME
    if not index.exists():
        if not (folder / SINGLE_NAME).exists():
            raise ModelError(f"{folder.name} has neither {SINGLE_NAME} nor {INDEX_NAME}")
        return {}
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ModelError(f"{INDEX_NAME} has no weight_map")
    named = {name: str(file) for name, file in files.items()}
    for file in sorted({*named.values()}):
        if Path(file).name != file:
            raise ModelError(f"{INDEX_NAME} names {file!r}, which is not a file of this folder")
        if not (folder / file).exists():
            raise ModelError(f"{folder.name} lacks the shard {file} that {INDEX_NAME} names")
    return named


def _open(path: Path) -> Any:  # noqa: ANN401 - the package has no types
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path.name} is damaged or truncated: {error}") from error
