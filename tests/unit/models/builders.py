"""Tiny models with random weights, made with transformers, as folders and as GGUF files."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TINY: dict[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}


@dataclass(frozen=True)
class TinyModel:
    """A folder as Hugging Face publishes one, and the model to compare with."""

    folder: Path
    reference: Any
    """Of transformers."""

    @torch.inference_mode()
    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """[len(token_ids), vocab], as transformers computes them."""
        logits: torch.Tensor = self.reference(torch.tensor([token_ids])).logits[0]
        return logits


def make_llama(folder: Path, *, shard_size: str = "1GB", **changes: Any) -> TinyModel:
    """Save a random Llama; `changes` are values of its LlamaConfig."""
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LlamaForCausalLM(LlamaConfig(**(TINY | changes)))
        model.train(False)
        for name, parameter in model.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
        model.save_pretrained(folder, max_shard_size=shard_size)
    return TinyModel(folder, model)


def write_gguf(
    path: Path, model: LlamaForCausalLM, *, kind: str = "F32", add_rope_freqs: bool = False
) -> Path:
    """Write a model as llama.cpp's converter does: rotary rows of q and k interleaved."""
    writer = gguf.GGUFWriter(path, "llama")
    write_sizes(writer, model.config)
    quantization = gguf.GGMLQuantizationType[kind]
    head_dim: Any = model.config.head_dim
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            num_heads = values.shape[0] // head_dim
            halves = values.reshape(num_heads, 2, -1, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        stored = values if values.ndim == 1 else gguf.quantize(values, quantization)
        raw_type = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else quantization
        writer.add_tensor(ggml_name(name), np.ascontiguousarray(stored), raw_dtype=raw_type)
    if add_rope_freqs:
        factors = np.linspace(1, 8, head_dim // 2, dtype=np.float32)
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_eos_token_id(config.eos_token_id)


def ggml_name(name: str) -> str:
    """llama.cpp's name of a tensor, from the gguf package's own table."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 8)
    base, _, suffix = name.rpartition(".")
    return f"{table.get_name(base)}.{suffix}"
