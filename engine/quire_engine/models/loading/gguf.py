"""Weights of a GGUF file, as float32."""

import math
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec
from quire_engine.models.facts import gguf_spec
from quire_engine.models.loading.base import WeightSource
from quire_engine.models.loading.ggml_types import GGML_TYPES
from quire_engine.models.loading.gguf_file import GGUFFile, TensorEntry, open_gguf

_GLOBAL_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "rope_freqs": "rope_freqs",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_POST_NORM_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Where there are norms behind attention and MLP."""


class GGUFWeights(WeightSource):
    """Reads tensors out of a mapped GGUF file, dequantised as the gguf package does it."""

    def __init__(self, path: Path) -> None:
        self.file: GGUFFile = open_gguf(path)
        super().__init__(gguf_spec(self.file), path.name)

    def stored_shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape, or None."""
        entry = self.entry(name)
        return None if entry is None else entry.shape

    def read_stored(self, name: str, rows: slice | None) -> torch.Tensor:
        """Return a tensor, or some of its rows, as float32."""
        entry = self.entry(name)
        if entry is None:
            raise RuntimeError(f"bug: {name} is read without being found")
        return torch.from_numpy(dequantize(self.file, entry, rows))

    def entry(self, name: str) -> TensorEntry | None:
        """Return where a tensor lies, by Hugging Face's name of it, or None."""
        return self.file.tensors.get(gguf_name(self.spec, name))


def gguf_name(spec: ModelSpec, name: str) -> str:
    """Translate Hugging Face's name of a tensor, such as model.layers.0.mlp.up_proj.weight."""
    module, _, kind = name.rpartition(".")
    if module in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[module]}.{kind}"
    layer, _, member = module.removeprefix("model.layers.").partition(".")
    names = _LAYER_NAMES | _POST_NORM_NAMES if spec.has_post_norms else _LAYER_NAMES
    return f"blk.{layer}.{names[member]}.{kind}"


def dequantize(
    file: GGUFFile, entry: TensorEntry, chosen: slice | None = None
) -> npt.NDArray[np.float32]:
    """Read a tensor, or some of its rows, as float32.

    Raises
    ------
    ModelError
        Its type is not supported, or its rows are no whole blocks of it.
    """
    kind = _quantization(file, entry)
    values_per_block, bytes_per_block = GGML_QUANT_SIZES[kind]
    *rows, columns = entry.shape
    if columns % values_per_block:
        raise ModelError(
            f"{file.path.name} is damaged: {entry.name} has rows of {columns} values, which is no "
            f"multiple of {kind.name}'s {values_per_block}"
        )
    shape = (*rows, columns // values_per_block * bytes_per_block)
    raw = np.frombuffer(file.data, np.uint8, math.prod(shape), entry.offset).reshape(shape)
    if chosen is not None:
        raw = raw[chosen]
    if kind == GGMLQuantizationType.F32:
        return raw.view("<f4").astype(np.float32)
    with np.errstate(all="ignore"):  # damaged scales overflow; what is not finite is refused later
        return np.asarray(gguf.dequantize(raw, kind), dtype=np.float32)


def _quantization(file: GGUFFile, entry: TensorEntry) -> GGMLQuantizationType:
    if entry.type_id in GGML_TYPES:
        return GGMLQuantizationType(entry.type_id)
    known = {kind.value: kind.name for kind in GGMLQuantizationType}
    raise ModelError(
        f"{file.path.name}: {entry.name} has type "
        f"{known.get(entry.type_id, f'number {entry.type_id}')}, which is not supported; supported "
        f"are {', '.join(kind.name for kind in GGML_TYPES.values())}"
    )
