"""The C structs of `src/quire_cpu.h`, field by field."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum


class Format(IntEnum):
    """How a packed matrix is stored."""

    F32 = 0
    F16 = 1
    BF16 = 2
    Q4 = 3
    """4 bits, fp16 scale and minimum for 32 weights: 5 bits a weight."""
    Q8 = 4
    """8 bits, fp16 scale for 32 weights: 8.5 bits a weight."""
    Q8M = 5
    """8 bits, fp16 scale and minimum for 32 weights: 9 bits a weight."""
    Q8H = 6
    """8 bits, fp16 scale for 16 weights: 9 bits a weight."""


class Activation(IntEnum):
    """Function of the gate."""

    SILU = 0
    GELU_TANH = 1


class CMatrix(ctypes.Structure):
    """A packed matrix; all zero where a model has none."""

    _fields_ = (("tiles", c_void_p), ("rows", c_int64), ("cols", c_int64), ("format", c_int32))


class CLayer(ctypes.Structure):
    """One layer's weights."""

    _fields_ = (
        ("attention_norm", c_void_p),
        ("query", CMatrix),
        ("key", CMatrix),
        ("value", CMatrix),
        ("query_bias", c_void_p),
        ("key_bias", c_void_p),
        ("value_bias", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("output", CMatrix),
        ("post_attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("gate", CMatrix),
        ("up", CMatrix),
        ("down", CMatrix),
        ("post_mlp_norm", c_void_p),
        ("window", c_int32),
        ("rope", c_int32),
    )


class CModel(ctypes.Structure):
    """A decoder."""

    _fields_ = (
        ("num_layers", c_int32),
        ("hidden", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("intermediate", c_int32),
        ("vocab", c_int32),
        ("activation", c_int32),
        ("epsilon", c_float),
        ("attention_scale", c_float),
        ("attention_softcap", c_float),
        ("logit_softcap", c_float),
        ("embedding_scale", c_float),
        ("rope_scale", c_float * 2),
        ("inverse_frequencies", c_void_p * 2),
        ("embedding", CMatrix),
        ("head", CMatrix),
        ("final_norm", c_void_p),
        ("layers", POINTER(CLayer)),
    )


class CCache(ctypes.Structure):
    """KV memory."""

    _fields_ = (
        ("data", c_void_p),
        ("num_blocks", c_int64),
        ("num_layers", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("dtype", c_int32),
    )


class CBatch(ctypes.Structure):
    """One step's work."""

    _fields_ = (
        ("num_chunks", c_int32),
        ("rows", c_void_p),
        ("starts", c_void_p),
        ("num_tokens", c_void_p),
        ("samples", c_void_p),
        ("token_ids", c_void_p),
        ("block_tables", c_void_p),
        ("block_table_stride", c_int64),
        ("logits", c_void_p),
        ("argmax", c_void_p),
        ("states", c_void_p),
    )
