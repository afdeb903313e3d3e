"""Which tensors a decoder of each family has: one table for every executor.

Names are those of Hugging Face's Llama. Where a family's files name or lay out a tensor otherwise,
`loading` translates.
"""

from dataclasses import dataclass

from quire_engine.models.config import ModelSpec

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
ROPE_FACTORS = "rope_freqs.weight"
"""[head_dim / 2]: divides the rotary frequencies; only some GGUF files have it."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A norm's weight, or a bias."""

    name: str
    size: int
    offset: float = 0.0
    """What is to be added to the files' values."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A product's weight."""

    name: str
    rows: int
    """Outputs."""
    cols: int
    """Inputs."""


def layer_matrices(spec: ModelSpec, layer: int) -> dict[str, Matrix]:
    """Return a layer's matrices, by what they compute."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    query, key_value = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes = {
        "query": ("self_attn.q_proj", query, hidden),
        "key": ("self_attn.k_proj", key_value, hidden),
        "value": ("self_attn.v_proj", key_value, hidden),
        "output": ("self_attn.o_proj", hidden, query),
        "gate": ("mlp.gate_proj", inner, hidden),
        "up": ("mlp.up_proj", inner, hidden),
        "down": ("mlp.down_proj", hidden, inner),
    }
    return {
        role: Matrix(f"model.layers.{layer}.{name}.weight", rows, cols)
        for role, (name, rows, cols) in shapes.items()
    }


def layer_vectors(spec: ModelSpec, layer: int) -> dict[str, Vector]:
    """Return a layer's norms and biases, by what they do; those that the family has."""
    prefix, hidden, head = f"model.layers.{layer}.", spec.hidden_size, spec.head_dim
    norms = {"attention_norm": ("input_layernorm", hidden)}
    if spec.has_post_norms:
        norms["post_attention_norm"] = ("post_attention_layernorm", hidden)
        norms["mlp_norm"] = ("pre_feedforward_layernorm", hidden)
        norms["post_mlp_norm"] = ("post_feedforward_layernorm", hidden)
    else:
        norms["mlp_norm"] = ("post_attention_layernorm", hidden)
    if spec.has_head_norms:
        norms["query_norm"] = ("self_attn.q_norm", head)
        norms["key_norm"] = ("self_attn.k_norm", head)
    vectors = {
        role: Vector(f"{prefix}{name}.weight", size, spec.norm_offset)
        for role, (name, size) in norms.items()
    }
    if spec.has_biases:
        query, key_value = spec.num_heads * head, spec.num_kv_heads * head
        for role, name, size in (
            ("query_bias", "q_proj", query),
            ("key_bias", "k_proj", key_value),
            ("value_bias", "v_proj", key_value),
        ):
            vectors[role] = Vector(f"{prefix}self_attn.{name}.bias", size)
    return vectors


def final_norm(spec: ModelSpec) -> Vector:
    """Return the norm before the output matrix."""
    return Vector(FINAL_NORM, spec.hidden_size, spec.norm_offset)
