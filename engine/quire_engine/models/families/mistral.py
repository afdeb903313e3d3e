"""Mistral: Llama, in its first version with a window in every layer."""

from quire_engine.models.config import ModelSpec
from quire_engine.models.families import hf
from quire_engine.models.metadata import Facts


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' MistralConfig, whose default is a window of 4096."""
    facts.refuse("hidden_act", "silu", default="silu")
    window = 4096 if "sliding_window" not in facts.values else facts.optional_int("sliding_window")
    return hf.read_spec(
        facts,
        architecture,
        window=window or 0,
        windowed_layers=hf.read_windowed_layers(facts, lambda _: window is not None),
    )
