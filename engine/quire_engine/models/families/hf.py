"""What Hugging Face configs of all families have in common."""

from collections.abc import Callable
from typing import Any

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec, RopeSpec
from quire_engine.models.families.hf_rope import extended_context, read_rope
from quire_engine.models.metadata import Facts


def read_spec(
    facts: Facts,
    architecture: str,
    *,
    rope: RopeSpec | None = None,
    ties_embeddings: bool = False,
    **flags: Any,  # noqa: ANN401 - fields of ModelSpec, which checks them
) -> ModelSpec:
    """Read a `config.json`.

    Parameters
    ----------
    rope
        Where the family states it in a way of its own.
    ties_embeddings
        Unless the file says otherwise, as the family's config class in transformers has it.
    flags
        How the family differs from Llama: fields of `ModelSpec`.
    """
    _refuse_quantization(facts)
    for key in ("attention_bias", "mlp_bias"):
        facts.refuse(key, expected=False, default=False)
    hidden_size = facts.positive_int("hidden_size")
    num_heads = facts.positive_int("num_attention_heads")
    head_dim = facts.positive_int("head_dim", default=max(hidden_size // num_heads, 1))
    rope = rope or read_rope(facts, head_dim)
    return ModelSpec(
        architecture=architecture,
        vocab_size=facts.positive_int("vocab_size"),
        context_length=extended_context(rope, facts.positive_int("max_position_embeddings")),
        hidden_size=hidden_size,
        intermediate_size=facts.positive_int("intermediate_size"),
        num_layers=facts.num_layers("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=facts.positive_int("num_key_value_heads", default=num_heads),
        head_dim=head_dim,
        norm_epsilon=facts.positive_float("rms_norm_eps", default=1e-6),
        rope=rope,
        ties_embeddings=facts.boolean("tie_word_embeddings", default=ties_embeddings),
        eos_token_ids=facts.token_ids("eos_token_id"),
        **flags,
    )


def read_windowed_layers(facts: Facts, is_windowed: Callable[[int], bool]) -> frozenset[int]:
    """Return the layers with a window: those that `layer_types` names, or else the family's rule.

    Raises
    ------
    ModelError
        `layer_types` is no list of known types, one for each layer.
    """
    num_layers = facts.num_layers("num_hidden_layers")
    types = facts.values.get("layer_types")
    if types is None:
        return frozenset(filter(is_windowed, range(num_layers)))
    known = {"full_attention", "sliding_attention"}
    if not isinstance(types, list) or len(types) != num_layers or not known.issuperset(types):
        raise ModelError(
            f"{facts.origin}: layer_types must name {' or '.join(sorted(known))} for each of "
            f"{num_layers} layers"
        )
    return frozenset(i for i, kind in enumerate(types) if kind == "sliding_attention")


def _refuse_quantization(facts: Facts) -> None:
    quantization = facts.section("quantization_config")
    if quantization is not None:
        raise ModelError(
            f"{facts.origin}: quantization {quantization.values.get('quant_method')!r} is not "
            "supported; supported are unquantized safetensors, and quantized GGUF files"
        )
