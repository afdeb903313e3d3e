"""A decoder as the kernels know it: its shape and its weights, and the C structs of both."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch

from quire_kernels.cpu.layout import Activation, CLayer, CModel
from quire_kernels.cpu.packing import PackedMatrix
from quire_kernels.errors import ArgumentError


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """What a decoder computes, apart from its weights."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    """A multiple of 8."""
    norm_epsilon: float
    activation: Activation = Activation.SILU
    attention_scale: float | None = None
    """Of query times key; None: head_dim ** -0.5."""
    attention_softcap: float = 0.0
    """Scores become cap * tanh(score / cap); 0: none."""
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    rope_scale: tuple[float, float] = (1.0, 1.0)
    """Factor of cosines and sines, by frequency table (yarn's attention factor)."""


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """One layer. Norms and biases are fp32, CPU, contiguous; None: the model has none there."""

    attention_norm: torch.Tensor
    """[hidden]"""
    query: PackedMatrix
    """[num_heads * head_dim, hidden]; a head's pairs are its first half against its second."""
    key: PackedMatrix
    """[num_kv_heads * head_dim, hidden]"""
    value: PackedMatrix
    """[num_kv_heads * head_dim, hidden]"""
    output: PackedMatrix
    """[hidden, num_heads * head_dim]"""
    mlp_norm: torch.Tensor
    """[hidden]"""
    gate: PackedMatrix
    """[intermediate, hidden]"""
    up: PackedMatrix
    """[intermediate, hidden]"""
    down: PackedMatrix
    """[hidden, intermediate]"""
    query_bias: torch.Tensor | None = None
    """[num_heads * head_dim]"""
    key_bias: torch.Tensor | None = None
    """[num_kv_heads * head_dim]"""
    value_bias: torch.Tensor | None = None
    """[num_kv_heads * head_dim]"""
    query_norm: torch.Tensor | None = None
    """[head_dim]: RMSNorm of each query head, before the rotation (Qwen3, Gemma 3)."""
    key_norm: torch.Tensor | None = None
    """[head_dim]"""
    post_attention_norm: torch.Tensor | None = None
    """[hidden]: RMSNorm of the attention's output, before it is added (Gemma 2 and 3)."""
    post_mlp_norm: torch.Tensor | None = None
    """[hidden]"""
    window: int = 0
    """A query sees so many of the newest keys, itself included; 0: all."""
    rope: int = 0
    """Which of `DecoderWeights.inverse_frequencies`."""


@dataclass(frozen=True, kw_only=True)
class DecoderWeights:
    """All of a decoder."""

    embedding: PackedMatrix
    """[vocab, hidden]"""
    head: PackedMatrix
    """[vocab, hidden]: the very object `embedding` is, where the model ties them."""
    final_norm: torch.Tensor
    """[hidden], fp32."""
    layers: tuple[LayerWeights, ...]
    inverse_frequencies: tuple[torch.Tensor, ...]
    """One or two of [head_dim / 2], fp32: the angle that each pair turns per position."""

    @property
    def hidden(self) -> int:
        """Size of the hidden states."""
        return self.embedding.cols


_MATRICES = ("query", "key", "value", "output", "gate", "up", "down")
_VECTORS = (
    "attention_norm",
    "mlp_norm",
    "query_bias",
    "key_bias",
    "value_bias",
    "query_norm",
    "key_norm",
    "post_attention_norm",
    "post_mlp_norm",
)


@dataclass(frozen=True)
class ModelDescriptor:
    """The C struct of a decoder, and what must live as long as it."""

    struct: CModel
    weights: DecoderWeights
    layers: ctypes.Array[CLayer] = field(repr=False)


def describe(shape: DecoderShape, weights: DecoderWeights) -> ModelDescriptor:
    """Check that all sizes agree, and fill the C structs.

    Raises
    ------
    ArgumentError
        A matrix or vector has another shape, dtype or layout than the others ask for.
    """
    _check_shape(shape, weights)
    layers = (CLayer * len(weights.layers))()
    for index, layer in enumerate(weights.layers):
        _check_layer(f"layers[{index}]", shape, weights, layer)
        for name in _MATRICES:
            setattr(layers[index], name, getattr(layer, name).descriptor())
        for name in _VECTORS:
            vector = getattr(layer, name)
            setattr(layers[index], name, None if vector is None else vector.data_ptr())
        layers[index].window = layer.window
        layers[index].rope = layer.rope
    scale = shape.attention_scale
    struct = CModel(
        num_layers=len(weights.layers),
        hidden=weights.hidden,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate=weights.layers[0].gate.rows,
        vocab=weights.head.rows,
        activation=shape.activation,
        epsilon=shape.norm_epsilon,
        attention_scale=shape.head_dim**-0.5 if scale is None else scale,
        attention_softcap=shape.attention_softcap,
        logit_softcap=shape.logit_softcap,
        embedding_scale=shape.embedding_scale,
        embedding=weights.embedding.descriptor(),
        head=weights.head.descriptor(),
        final_norm=weights.final_norm.data_ptr(),
        layers=layers,
    )
    for index, frequencies in enumerate(weights.inverse_frequencies):
        struct.inverse_frequencies[index] = frequencies.data_ptr()
        struct.rope_scale[index] = shape.rope_scale[index]
    return ModelDescriptor(struct, weights, layers)


def _check_shape(shape: DecoderShape, weights: DecoderWeights) -> None:
    if shape.head_dim % 8 or shape.num_heads % shape.num_kv_heads:
        raise ArgumentError(
            f"head_dim {shape.head_dim} must be a multiple of 8, and num_heads {shape.num_heads} "
            f"one of num_kv_heads {shape.num_kv_heads}"
        )
    if not weights.layers or not 1 <= len(weights.inverse_frequencies) <= 2:
        raise ArgumentError("a decoder has at least one layer, and one or two frequency tables")
    _check_matrix("head", weights.head, weights.embedding.rows, weights.hidden)
    _check_vector("final_norm", weights.final_norm, weights.hidden)
    for frequencies in weights.inverse_frequencies:
        _check_vector("inverse_frequencies", frequencies, shape.head_dim // 2)


def _check_layer(
    where: str, shape: DecoderShape, weights: DecoderWeights, layer: LayerWeights
) -> None:
    hidden, inner = weights.hidden, weights.layers[0].gate.rows
    query, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    sizes = {
        "query": (query, hidden),
        "key": (kv, hidden),
        "value": (kv, hidden),
        "output": (hidden, query),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    for name, (rows, cols) in sizes.items():
        _check_matrix(f"{where}.{name}", getattr(layer, name), rows, cols)
    lengths = {
        "query_bias": query,
        "key_bias": kv,
        "value_bias": kv,
        "query_norm": shape.head_dim,
        "key_norm": shape.head_dim,
    }
    for name in _VECTORS:
        _check_vector(f"{where}.{name}", getattr(layer, name), lengths.get(name, hidden))
    if not 0 <= layer.rope < len(weights.inverse_frequencies) or layer.window < 0:
        raise ArgumentError(f"{where}: rope {layer.rope} or window {layer.window} is out of range")


def _check_matrix(where: str, matrix: PackedMatrix, rows: int, cols: int) -> None:
    if (matrix.rows, matrix.cols) != (rows, cols):
        raise ArgumentError(f"{where}: [{matrix.rows}, {matrix.cols}], expected [{rows}, {cols}]")


def _check_vector(where: str, vector: torch.Tensor | None, size: int) -> None:
    if vector is None:
        return
    is_plain = vector.dtype == torch.float32 and vector.is_contiguous()
    if tuple(vector.shape) != (size,) or not is_plain or vector.device.type != "cpu":
        raise ArgumentError(
            f"{where}: {tuple(vector.shape)} of {vector.dtype} on {vector.device}, expected "
            f"({size},) of float32 on cpu, contiguous"
        )
