"""Qwen2 and Qwen2.5: biases of query, key and value; a window in the later layers, if any."""

from typing import Any

from quire_engine.models.config import ModelSpec
from quire_engine.models.families import gguf, hf
from quire_engine.models.metadata import Facts


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' Qwen2Config."""
    facts.refuse("hidden_act", "silu", default="silu")
    return hf.read_spec(facts, architecture, has_biases=True, **read_window(facts))


def read_window(facts: Facts) -> dict[str, Any]:
    """Return the window's fields of `ModelSpec`; `use_sliding_window` turns it on."""
    if not facts.boolean("use_sliding_window", default=False):
        return {}
    first = facts.values.get("max_window_layers", 28)
    if not isinstance(first, int) or first < 0:
        first = facts.positive_int("max_window_layers")
    return {
        "window": facts.positive_int("sliding_window", default=4096),
        "windowed_layers": hf.read_windowed_layers(facts, lambda layer: layer >= first),
    }


def spec_from_gguf(facts: Facts, architecture: str) -> ModelSpec:
    """Read GGUF metadata."""
    return gguf.read_spec(facts, architecture, has_biases=True)
