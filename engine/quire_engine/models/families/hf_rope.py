"""How Hugging Face configs state the rotary embedding."""

import math

from quire_engine.errors import ModelError
from quire_engine.models.config import ROPE_SCALINGS, RopeScaling, RopeSpec
from quire_engine.models.metadata import Facts


def read_rope(
    facts: Facts, head_dim: int, *, layer_type: str | None = None, theta: float = 10000.0
) -> RopeSpec:
    """Read `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (before).

    Parameters
    ----------
    layer_type
        Whose entry of `rope_parameters` is read, where layers differ.
    theta
        The base where nothing states it.
    """
    parameters = facts.section("rope_parameters")
    if parameters is not None and layer_type is not None:
        parameters = parameters.section(layer_type)
    parameters = parameters or facts.section("rope_scaling")
    outer_theta = facts.positive_float("rope_theta", default=theta)
    rotary_dim = _rotary_dim(facts, parameters, head_dim)
    if parameters is None:
        return RopeSpec(theta=outer_theta, rotary_dim=rotary_dim)
    scaling = _read_scaling(facts, parameters, (rotary_dim or head_dim) // 2)
    theta = parameters.positive_float("rope_theta", default=outer_theta)
    return RopeSpec(theta=theta, scaling=scaling, rotary_dim=rotary_dim)


def extended_context(rope: RopeSpec, max_positions: int) -> int:
    """Return the context length with the scaling, as vLLM derives it.

    `max_position_embeddings` is the length before the scaling for linear and dynamic, and may be
    either for yarn.
    """
    scaling = rope.scaling
    if scaling is None or scaling.kind in ("llama3", "longrope"):
        return max_positions
    if scaling.kind == "yarn":
        return max(max_positions, int(scaling.original_context_length * scaling.factor))
    return int(max_positions * scaling.factor)


def _rotary_dim(facts: Facts, parameters: Facts | None, head_dim: int) -> int | None:
    """Return how many values of a head rotate, if not all."""
    share = facts.positive_float("partial_rotary_factor", default=1.0)
    if parameters is not None:
        share = parameters.positive_float("partial_rotary_factor", default=share)
    return None if share == 1.0 else int(head_dim * share)


def _read_scaling(facts: Facts, parameters: Facts, num_pairs: int) -> RopeScaling | None:
    kind = parameters.values.get("rope_type", parameters.values.get("type", "default"))
    if kind == "default":
        return None
    max_positions = facts.positive_int("max_position_embeddings")
    original = parameters.positive_int("original_max_position_embeddings", default=max_positions)
    if kind == "linear":
        return RopeScaling(kind="linear", factor=parameters.positive_float("factor"))
    if kind == "dynamic":
        factor = parameters.positive_float("factor")
        return RopeScaling(kind="dynamic", factor=factor, original_context_length=max_positions)
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=parameters.positive_float("factor"),
            low_frequency_factor=parameters.positive_float("low_freq_factor"),
            high_frequency_factor=parameters.positive_float("high_freq_factor"),
            original_context_length=original,
        )
    if kind == "yarn":
        return _read_yarn(parameters, original, max_positions)
    if kind in ("longrope", "su"):
        # Phi-3 states it beside, and there it wins
        original = facts.positive_int("original_max_position_embeddings", default=original)
        return _read_longrope(parameters, original, max_positions, num_pairs)
    raise ModelError(
        f"{parameters.origin}: rope_type {kind!r} is not supported; supported are default, "
        f"{', '.join(ROPE_SCALINGS)}"
    )


def _read_yarn(parameters: Facts, original: int, max_positions: int) -> RopeScaling:
    factor = parameters.positive_float("factor", default=max_positions / original)
    mscale = parameters.optional_float("mscale")
    mscale_all = parameters.optional_float("mscale_all_dim")
    default = yarn_attention_factor(factor)
    if mscale is not None and mscale_all is not None:
        default = yarn_attention_factor(factor, mscale) / yarn_attention_factor(factor, mscale_all)
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_context_length=original,
        attention_factor=parameters.positive_float("attention_factor", default=default),
        fast_turns=parameters.positive_float("beta_fast", default=32.0),
        slow_turns=parameters.positive_float("beta_slow", default=1.0),
        rounds_range=parameters.boolean("truncate", default=True),
    )


def _read_longrope(
    parameters: Facts, original: int, max_positions: int, num_pairs: int
) -> RopeScaling:
    factor = parameters.positive_float("factor", default=max_positions / original)
    default = longrope_attention_factor(factor, original)
    return RopeScaling(
        kind="longrope",
        factor=factor,
        original_context_length=original,
        attention_factor=parameters.positive_float("attention_factor", default=default),
        short_factors=parameters.positive_floats("short_factor", num_pairs),
        long_factors=parameters.positive_floats("long_factor", num_pairs),
    )


def yarn_attention_factor(factor: float, weight: float = 1.0) -> float:
    """Return by how much attention sharpens with a longer context (YaRN, arXiv:2309.00071)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def longrope_attention_factor(factor: float, original: int) -> float:
    """Return the same for LongRoPE, as Phi-3's code has it."""
    if factor <= 1 or original <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))
