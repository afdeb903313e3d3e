"""What GGUF metadata of all families has in common; its keys begin with the architecture's name."""

from typing import Any

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec, RopeScaling, RopeSpec
from quire_engine.models.families.gguf_ends import read_end_tokens
from quire_engine.models.families.hf_rope import extended_context, yarn_attention_factor
from quire_engine.models.metadata import Facts


def read_spec(
    facts: Facts,
    architecture: str,
    **flags: Any,  # noqa: ANN401 - fields of ModelSpec, which checks them
) -> ModelSpec:
    """Read GGUF metadata; `flags` are how the family differs from Llama: fields of `ModelSpec`."""

    def size(key: str, default: int | None = None) -> int:
        return facts.positive_int(f"{architecture}.{key}", default)

    hidden_size, num_heads = size("embedding_length"), size("attention.head_count")
    head_dim = size("attention.key_length", default=max(hidden_size // num_heads, 1))
    facts.refuse(f"{architecture}.attention.value_length", head_dim, default=head_dim)
    facts.refuse(f"{architecture}.expert_count", 0, default=0)
    rope = read_rope(facts, architecture, head_dim)
    tokens = facts.values.get("tokenizer.ggml.tokens")
    return ModelSpec(
        architecture=architecture,
        vocab_size=size("vocab_size", default=len(tokens) if isinstance(tokens, list) else None),
        context_length=extended_context(rope, size("context_length")),
        hidden_size=hidden_size,
        intermediate_size=size("feed_forward_length"),
        num_layers=facts.num_layers(f"{architecture}.block_count"),
        num_heads=num_heads,
        num_kv_heads=size("attention.head_count_kv", default=num_heads),
        head_dim=head_dim,
        norm_epsilon=facts.positive_float(f"{architecture}.attention.layer_norm_rms_epsilon"),
        rope=rope,
        ties_embeddings=True,  # GGUF leaves the output matrix out just where it is the embedding
        eos_token_ids=read_end_tokens(facts),
        **flags,
    )


def read_window(facts: Facts, architecture: str) -> int:
    """Return the window that the file states, or 0."""
    key = f"{architecture}.attention.sliding_window"
    return facts.positive_int(key) if facts.values.get(key) else 0


def read_rope(facts: Facts, architecture: str, head_dim: int) -> RopeSpec:
    """Read the rotary facts; scalings by a factor for each pair are not here but in tensors."""
    prefix = f"{architecture}.rope."
    theta = facts.positive_float(f"{prefix}freq_base", default=10000.0)
    rotary_dim = facts.positive_int(f"{prefix}dimension_count", default=head_dim)
    scaling = _read_scaling(facts, architecture)
    partial = None if rotary_dim == head_dim else rotary_dim
    return RopeSpec(theta=theta, scaling=scaling, rotary_dim=partial)


def _read_scaling(facts: Facts, architecture: str) -> RopeScaling | None:
    prefix = f"{architecture}.rope.scaling."
    kind = facts.values.get(f"{prefix}type", "none")
    if kind in ("none", "longrope"):  # longrope's factors are tensors, see `facts.gguf_spec`
        return None
    factor = facts.positive_float(f"{prefix}factor")
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    if kind == "yarn":
        share = facts.positive_float(f"{prefix}attn_factor", default=1.0)
        length = facts.positive_int(f"{architecture}.context_length")
        return RopeScaling(
            kind="yarn",
            factor=factor,
            original_context_length=facts.positive_int(
                f"{prefix}original_context_length", default=length
            ),
            attention_factor=yarn_attention_factor(factor) * share,
            fast_turns=facts.positive_float(f"{prefix}yarn_beta_fast", default=32.0),
            slow_turns=facts.positive_float(f"{prefix}yarn_beta_slow", default=1.0),
        )
    raise ModelError(
        f"{facts.origin}: rope scaling {kind!r} is not supported; supported are none, linear, yarn "
        "and longrope"
    )
