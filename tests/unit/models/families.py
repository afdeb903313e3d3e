"""A tiny random model of each family, made with transformers, and its GGUF file."""

import random
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from tests.unit.models.builders import TINY, TinyModel, write_sizes

WINDOW = 24
"""Of the families that have one: texts in tests are several times as long."""
_GEMMA = {
    "head_dim": 32,
    "query_pre_attn_scalar": 20,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 10.0,
    "hidden_activation": "gelu_pytorch_tanh",
}


@dataclass(frozen=True)
class Family:
    """What sets a family's tiny model apart."""

    config: str
    """Name of transformers' config class."""
    changes: dict[str, Any]
    gguf_name: str = "llama"

    @property
    def arch(self) -> gguf.MODEL_ARCH:
        names = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
        return names[self.gguf_name]


FAMILIES = {
    "llama": Family("LlamaConfig", {}),
    "smollm2": Family("LlamaConfig", {"tie_word_embeddings": True, "num_attention_heads": 6,
                                      "hidden_size": 96, "num_key_value_heads": 3}),
    "mistral": Family("MistralConfig", {"sliding_window": WINDOW}),
    "mistral without a window": Family("MistralConfig", {"sliding_window": None}),
    "qwen2": Family("Qwen2Config", {}, "qwen2"),
    "qwen2 with a window": Family(
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
        "qwen2",
    ),
    "qwen3": Family("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}, "qwen3"),
    "phi3": Family("Phi3Config", {"sliding_window": WINDOW, "pad_token_id": 0}, "phi3"),
    "phi3 of which a part rotates": Family(
        "Phi3Config",
        {
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
            },
        },
        "phi3",
    ),
    "gemma2": Family("Gemma2Config", _GEMMA | {"attn_logit_softcapping": 5.0}, "gemma2"),
    "gemma3": Family("Gemma3TextConfig", _GEMMA | {"num_hidden_layers": 7}, "gemma3"),
}  # fmt: skip


def make_family(folder: Path, family: Family, *, shard_size: str = "1GB", **more: Any) -> TinyModel:
    """Save a random model of a family; norms and biases are random too."""
    torch.manual_seed(7)
    config_class = getattr(transformers, family.config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = config_class(**(TINY | family.changes | more))
        make: Any = transformers.AutoModelForCausalLM.from_config
        model = make(config, attn_implementation="eager")
        model.train(False)
        centre = 0.0 if "Gemma" in family.config else 1.0  # their weights are added to 1
        for name, parameter in model.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(parameter, centre - 0.5, centre + 0.5)
            elif name.endswith("bias"):
                torch.nn.init.normal_(parameter, 0.0, 1.0)
        model.save_pretrained(folder, max_shard_size=shard_size)
    return TinyModel(folder, model)


def make_seeing_gemma3(folder: Path) -> TinyModel:
    """Save a random Gemma 3 with an eye, which is not used."""
    torch.manual_seed(7)
    # transformers caps no logits of a model that sees; no published one asks for it
    changes = FAMILIES["gemma3"].changes | {"final_logit_softcapping": None}
    text = transformers.Gemma3TextConfig(**(TINY | changes))
    eye = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
           "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip
    config_class: Any = transformers.Gemma3Config
    config = config_class(
        text_config=text, vision_config=eye, mm_tokens_per_image=4, eos_token_id=[2, 7],
        boi_token_index=200, eoi_token_index=201, image_token_index=202,
    )  # fmt: skip
    make: Any = transformers.AutoModelForImageTextToText.from_config
    model = make(config, attn_implementation="eager")
    model.train(False)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return TinyModel(folder, model)


def write_family_gguf(path: Path, family: Family, tiny: TinyModel, kind: str = "F32") -> Path:
    """Write a model as llama.cpp's converter does."""
    config: Any = tiny.reference.config
    writer = gguf.GGUFWriter(path, family.gguf_name)
    write_sizes(writer, config)
    _write_differences(writer, config)
    names = gguf.get_tensor_name_map(family.arch, config.num_hidden_layers)
    quantization = gguf.GGMLQuantizationType[kind]
    for name, tensor in tiny.reference.state_dict().items():
        values = tensor.numpy()
        if "Gemma" in family.config and "norm" in name:
            values = values + 1
        if family.gguf_name == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            halves = values.reshape(-1, 2, config.head_dim // 2, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        base, _, suffix = name.rpartition(".")
        is_vector = values.ndim == 1
        stored = values if is_vector else gguf.quantize(values, quantization)
        raw_type = gguf.GGMLQuantizationType.F32 if is_vector else quantization
        stored_name = f"{names.get_name(base)}.{suffix}"
        writer.add_tensor(stored_name, np.ascontiguousarray(stored), raw_dtype=raw_type)
    _write_longrope(writer, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_differences(writer: gguf.GGUFWriter, config: Any) -> None:
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if getattr(config, "attn_logit_softcapping", None):
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if getattr(config, "final_logit_softcapping", None):
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    rope = config.rope_parameters
    share = rope.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(share * head_dim(config)))
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if "original_max_position_embeddings" in rope:
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _write_longrope(writer: gguf.GGUFWriter, config: Any) -> None:
    if config.rope_parameters.get("rope_type") == "longrope":
        for length in ("short", "long"):
            factors = np.array(config.rope_parameters[f"{length}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)


def head_dim(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def some_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(199) for _ in range(num_tokens)]
