"""Reads a model's facts without its weights, and without torch."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec, RopeScaling
from quire_engine.models.families.hf_rope import longrope_attention_factor
from quire_engine.models.loading.gguf_file import GGUFFile, open_gguf, read_floats
from quire_engine.models.metadata import Facts
from quire_engine.models.registry import spec_from_gguf_metadata, spec_from_hf_config

_SHORT_FACTORS, _LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"


def read_model_spec(path: Path) -> ModelSpec:
    """Read the architecture, sizes, context length and end tokens of a model.

    Parameters
    ----------
    path
        A GGUF file, or a Hugging Face folder with config.json.

    Raises
    ------
    ModelError
        The files are missing or damaged, or the architecture is not supported.
    """
    if path.is_dir():
        return hf_spec(path)
    return gguf_spec(open_gguf(path))


def gguf_spec(file: GGUFFile) -> ModelSpec:
    """Read the facts of an open GGUF file."""
    facts = Facts(file.metadata, file.path.name)
    spec = spec_from_gguf_metadata(facts)
    if _LONG_FACTORS in file.tensors:
        scaling = _read_longrope(file, facts, spec)
        spec = replace(spec, rope=replace(spec.rope, scaling=scaling))
    return spec


def _read_longrope(file: GGUFFile, facts: Facts, spec: ModelSpec) -> RopeScaling:
    """Read LongRoPE, which GGUF files state as two tensors."""
    prefix = f"{spec.architecture}.rope.scaling."
    length = facts.positive_int(f"{prefix}original_context_length")
    default = longrope_attention_factor(spec.context_length / length, length)
    num_pairs = (spec.rope.rotary_dim or spec.head_dim) // 2
    return RopeScaling(
        kind="longrope",
        factor=spec.context_length / length,
        original_context_length=length,
        attention_factor=facts.positive_float(f"{prefix}attn_factor", default=default),
        short_factors=read_floats(file, _SHORT_FACTORS, num_pairs),
        long_factors=read_floats(file, _LONG_FACTORS, num_pairs),
    )


def hf_spec(folder: Path) -> ModelSpec:
    """Read the facts of a Hugging Face folder; generation_config.json's end tokens win."""
    values = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    if generation.exists():
        ends = read_json(generation).get("eos_token_id")
        values = values if ends is None else values | {"eos_token_id": ends}
    return spec_from_hf_config(Facts(values, "config.json"))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model folder.

    Raises
    ------
    ModelError
        The file is missing, or holds no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"{path.parent.name} has no {path.name}; a model is a .gguf file, or a folder with "
            "config.json, tokenizer.json and *.safetensors"
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path.name} must hold a JSON object")
    return value
