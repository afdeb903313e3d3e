"""Chooses the reader for a model's files."""

from pathlib import Path

from quire_engine.models.loading.base import WeightSource
from quire_engine.models.loading.gguf import GGUFWeights
from quire_engine.models.loading.safetensors import SafetensorsWeights


def open_weights(path: Path) -> WeightSource:
    """Open a GGUF file, or a Hugging Face folder with safetensors.

    Raises
    ------
    ModelError
        The files are missing or damaged, or ask for what is not supported.
    """
    return SafetensorsWeights(path) if path.is_dir() else GGUFWeights(path)
