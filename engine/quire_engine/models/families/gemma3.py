"""Gemma 3's text models: five layers with a window, then one without; two rotary embeddings."""

from dataclasses import replace

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec, RopeSpec
from quire_engine.models.families import gguf, hf
from quire_engine.models.families.gemma2 import gguf_flags, hf_flags, read_softcap
from quire_engine.models.families.hf_rope import read_rope
from quire_engine.models.metadata import Facts

_PATTERN = 6
_LOCAL_THETA = 10000.0
_GLOBAL_THETA = 1000000.0
_LAYERS_OF_27B = 62
_TEXT_DEFAULTS = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
}


def spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read a config of transformers' Gemma3TextConfig."""
    facts.refuse("attn_logit_softcapping", expected=None, default=None)
    pattern = facts.positive_int("sliding_window_pattern", default=_PATTERN)
    head_dim = facts.positive_int("head_dim", default=256)
    whole = Facts({**facts.values, "head_dim": head_dim}, facts.origin)
    spec = hf.read_spec(
        whole,
        architecture,
        rope=read_rope(facts, head_dim, layer_type="full_attention", theta=_GLOBAL_THETA),
        windowed_rope=_local_rope(facts, head_dim),
        window=facts.positive_int("sliding_window", default=4096),
        windowed_layers=hf.read_windowed_layers(facts, lambda i: (i + 1) % pattern != 0),
        has_head_norms=True,
        logit_softcap=read_softcap(facts, "final_logit_softcapping", 0.0),
        **hf_flags(facts),
    )
    # its max_position_embeddings is the length with the scaling
    return replace(spec, context_length=facts.positive_int("max_position_embeddings"))


def text_spec_from_hf(facts: Facts, architecture: str) -> ModelSpec:
    """Read the text part of a config of transformers' Gemma3Config, which sees images too.

    It leaves out what is as in Gemma3TextConfig.
    """
    text = facts.section("text_config")
    if text is None:
        raise ModelError(f"{facts.origin}: text_config is missing")
    values = {**_TEXT_DEFAULTS, **text.values}
    ends = facts.values.get("eos_token_id", values.get("eos_token_id"))
    return spec_from_hf(Facts({**values, "eos_token_id": ends}, text.origin), architecture)


def _local_rope(facts: Facts, head_dim: int) -> RopeSpec:
    """Read the rotary embedding of windowed layers; before transformers 5 it was a base alone."""
    if facts.section("rope_parameters") is not None:
        return read_rope(facts, head_dim, layer_type="sliding_attention", theta=_LOCAL_THETA)
    return RopeSpec(theta=facts.positive_float("rope_local_base_freq", default=_LOCAL_THETA))


def spec_from_gguf(facts: Facts, architecture: str) -> ModelSpec:
    """Read GGUF metadata; pattern and local base are not in the file but the same in all models."""
    window = gguf.read_window(facts, architecture)
    num_layers = facts.num_layers(f"{architecture}.block_count")
    context = facts.positive_int(f"{architecture}.context_length")
    theta = facts.positive_float(f"{architecture}.rope.freq_base_swa", default=_LOCAL_THETA)
    spec = gguf.read_spec(
        facts,
        architecture,
        window=window,
        windowed_layers=frozenset(i for i in range(num_layers) if window and (i + 1) % _PATTERN),
        windowed_rope=RopeSpec(theta=theta),
        has_head_norms=True,
        logit_softcap=read_softcap(facts, f"{architecture}.final_logit_softcapping", 0.0),
        **gguf_flags(facts, architecture, _LAYERS_OF_27B),
    )
    return replace(spec, context_length=context)
