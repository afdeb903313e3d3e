"""Qwen3: heads of query and key are normalized before they rotate."""

from quire_engine.models.config import ModelSpec
from quire_engine.models.families import gguf, hf
from quire_engine.models.families.qwen2 import read_window
from quire_engine.models.metadata import Facts


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' Qwen3Config, whose heads are 128 wide unless it says so."""
    facts.refuse("hidden_act", "silu", default="silu")
    if facts.values.get("head_dim") is None:
        facts = Facts({**facts.values, "head_dim": 128}, facts.origin)
    return hf.read_spec(facts, architecture, has_head_norms=True, **read_window(facts))


def spec_from_gguf(facts: Facts, architecture: str) -> ModelSpec:
    """Read GGUF metadata."""
    return gguf.read_spec(facts, architecture, has_head_norms=True)
