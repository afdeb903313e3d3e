"""A model folder with random weights of a known shape and another model's tokenizer.

`python -m benchmarks.gpu.dummy_folder llama3-8b SMALL.gguf FOLDER`, or with a tokenizer.json, lets
a server be measured at a size whose weights are not at hand. The vocabulary is the tokenizer's, so
that every token has text.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file

from quire_engine.models.loading.gguf_file import open_gguf
from quire_engine.profiles.shapes import ModelShape, find_shape
from quire_engine.tokenizing.ggml import build_tokenizer

LAYERS_PER_FILE = 4


def tensors_of(shape: ModelShape, index: int) -> dict[str, tuple[int, ...]]:
    """Names and sizes of one layer's tensors."""
    hidden, inner = shape.hidden_size, shape.ffn_size
    query, key = shape.num_q_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer = f"model.layers.{index}."
    return {
        f"{layer}input_layernorm.weight": (hidden,),
        f"{layer}self_attn.q_proj.weight": (query, hidden),
        f"{layer}self_attn.k_proj.weight": (key, hidden),
        f"{layer}self_attn.v_proj.weight": (key, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, query),
        f"{layer}post_attention_layernorm.weight": (hidden,),
        f"{layer}mlp.gate_proj.weight": (inner, hidden),
        f"{layer}mlp.up_proj.weight": (inner, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, inner),
    }


def draw(size: tuple[int, ...]) -> torch.Tensor:
    """Random bf16 values, norms around one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mean = 1.0 if len(size) == 1 else 0.0
    return torch.empty(size, dtype=torch.bfloat16, device=device).normal_(mean, 0.02).cpu()


def write(shape: ModelShape, tokenizer_of: Path, folder: Path) -> None:
    """Write config.json, tokenizer.json and the weights with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer_of.suffix == ".json":
        tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_of))
    else:
        tokenizer = build_tokenizer(open_gguf(tokenizer_of).metadata, tokenizer_of.name)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocab_size = tokenizer.get_vocab_size()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_q_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_model_len,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    parts = [
        {
            "model.embed_tokens.weight": (vocab_size, shape.hidden_size),
            "lm_head.weight": (vocab_size, shape.hidden_size),
            "model.norm.weight": (shape.hidden_size,),
        }
    ]
    for first in range(0, shape.num_layers, LAYERS_PER_FILE):
        part: dict[str, tuple[int, ...]] = {}
        for index in range(first, min(first + LAYERS_PER_FILE, shape.num_layers)):
            part |= tensors_of(shape, index)
        parts.append(part)
    files: dict[str, str] = {}
    for number, part in enumerate(parts):
        name = f"model-{number:05d}.safetensors"
        save_file({tensor: draw(size) for tensor, size in part.items()}, folder / name)
        files |= dict.fromkeys(part, name)
    index_file = folder / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"metadata": {}, "weight_map": files}), "utf-8")


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shape")
    parser.add_argument("tokenizer_of", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(find_shape(arguments.shape), arguments.tokenizer_of, arguments.folder)


if __name__ == "__main__":
    main()
