"""Phi-3 and Phi-4-mini: fused matrices in the files; LongRoPE; only a part of a head may rotate."""

from quire_engine.models.config import ModelSpec
from quire_engine.models.families import gguf, hf
from quire_engine.models.metadata import Facts


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' Phi3Config."""
    facts.refuse("hidden_act", "silu", default="silu")
    window = facts.optional_int("sliding_window")
    return hf.read_spec(
        _with_longrope(facts),
        architecture,
        is_fused=True,
        window=window or 0,
        windowed_layers=hf.read_windowed_layers(facts, lambda _: window is not None),
    )


def _with_longrope(facts: Facts) -> Facts:
    """Name LongRoPE so: Phi-3's own first files call it "yarn"."""
    values = dict(facts.values)
    for key in ("rope_parameters", "rope_scaling"):
        section = facts.section(key)
        if section is not None and "yarn" in (
            section.values.get("rope_type"),
            section.values.get("type"),
        ):
            values[key] = {**section.values, "rope_type": "longrope"}
    return Facts(values, facts.origin)


def spec_from_gguf(facts: Facts, architecture: str) -> ModelSpec:
    """Read GGUF metadata."""
    window = gguf.read_window(facts, architecture)
    num_layers = facts.num_layers(f"{architecture}.block_count")
    return gguf.read_spec(
        facts,
        architecture,
        is_fused=True,
        window=window,
        windowed_layers=frozenset(range(num_layers if window else 0)),
    )
