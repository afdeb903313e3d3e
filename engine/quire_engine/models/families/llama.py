"""Llama 2 and 3, and SmolLM2, which is one."""

from quire_engine.models.config import ModelSpec
from quire_engine.models.families import gguf, hf
from quire_engine.models.metadata import Facts


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' LlamaConfig."""
    facts.refuse("hidden_act", "silu", default="silu")
    return hf.read_spec(facts, architecture)


def spec_from_gguf(facts: Facts, architecture: str) -> ModelSpec:
    """Read GGUF metadata; Mistral's files say "llama" too."""
    window = gguf.read_window(facts, architecture)
    num_layers = facts.num_layers(f"{architecture}.block_count")
    return gguf.read_spec(
        facts,
        architecture,
        interleaves_rotary_rows=True,
        window=window,
        windowed_layers=frozenset(range(num_layers if window else 0)),
    )
