"""Where models come from: files and folders here, a Hugging Face hub, an address, a wheel."""

from quire_engine.sources.base import ResolvedModel
from quire_engine.sources.factory import model_name, repository_of, resolve

__all__ = ["ResolvedModel", "model_name", "repository_of", "resolve"]
