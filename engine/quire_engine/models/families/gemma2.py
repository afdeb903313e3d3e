"""Gemma 2: norms behind attention and MLP, soft-caps, a window in every other layer."""

from typing import Any

from quire_engine.models.config import ModelSpec
from quire_engine.models.families import gguf, hf
from quire_engine.models.metadata import Facts

_LAYERS_OF_27B = 46


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' Gemma2Config."""
    window = 4096 if "sliding_window" not in facts.values else facts.optional_int("sliding_window")
    is_windowed = window is not None
    return hf.read_spec(
        facts,
        architecture,
        window=window or 0,
        windowed_layers=hf.read_windowed_layers(facts, lambda i: is_windowed and i % 2 == 0),
        attention_softcap=read_softcap(facts, "attn_logit_softcapping", 50.0),
        logit_softcap=read_softcap(facts, "final_logit_softcapping", 30.0),
        **hf_flags(facts),
    )


def hf_flags(facts: Facts) -> dict[str, Any]:
    """Return what configs of Gemma 2 and 3 have in common."""
    facts.refuse("hidden_activation", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    if facts.values.get("use_bidirectional_attention"):
        facts.refuse("use_bidirectional_attention", expected=False, default=False)
    scalar = facts.positive_float("query_pre_attn_scalar", default=256.0)
    return {
        "ties_embeddings": True,
        "has_post_norms": True,
        "norm_offset": 1.0,
        "activation": "gelu_tanh",
        "embedding_scale": facts.positive_int("hidden_size") ** 0.5,
        "attention_scale": scalar**-0.5,
    }


def read_softcap(facts: Facts, key: str, default: float) -> float:
    """Return a soft-cap; null turns it off, which is 0 here."""
    return default if key not in facts.values else facts.optional_float(key) or 0.0


def spec_from_gguf(facts: Facts, architecture: str) -> ModelSpec:
    """Read GGUF metadata; the window's pattern is not in the file but the same in all models."""
    window = gguf.read_window(facts, architecture)
    num_layers = facts.num_layers(f"{architecture}.block_count")
    return gguf.read_spec(
        facts,
        architecture,
        window=window,
        windowed_layers=frozenset(i for i in range(num_layers) if window and i % 2 == 0),
        attention_softcap=read_softcap(facts, f"{architecture}.attn_logit_softcapping", 50.0),
        logit_softcap=read_softcap(facts, f"{architecture}.final_logit_softcapping", 30.0),
        **gguf_flags(facts, architecture, _LAYERS_OF_27B),
    )


def gguf_flags(facts: Facts, architecture: str, layers_of_27b: int) -> dict[str, Any]:
    """Return what GGUF files of Gemma 2 and 3 have in common.

    Their norm weights have the 1 added already. Attention is scaled by the head's size except in
    the models of 27B, by hidden size / heads, which only their number of layers tells.
    """
    hidden_size = facts.positive_int(f"{architecture}.embedding_length")
    num_heads = facts.positive_int(f"{architecture}.attention.head_count")
    is_27b = facts.num_layers(f"{architecture}.block_count") == layers_of_27b
    return {
        "has_post_norms": True,
        "activation": "gelu_tanh",
        "embedding_scale": hidden_size**0.5,
        "attention_scale": (hidden_size / num_heads) ** -0.5 if is_27b else None,
    }
