"""Loads a decoder of any family for the kernels."""

from collections.abc import Callable

import torch

from quire_engine.execution.native_cpu.matrices import Matrices
from quire_engine.models import tensors
from quire_engine.models.config import ModelSpec
from quire_engine.models.loading.base import WeightSource
from quire_engine.models.rope import inverse_frequencies
from quire_engine.models.tensors import Matrix
from quire_kernels.cpu import DecoderShape, DecoderWeights, LayerWeights
from quire_kernels.cpu.layout import Activation

_HEAD_DIM_MULTIPLE = 8
_ACTIVATIONS = {"silu": Activation.SILU, "gelu_tanh": Activation.GELU_TANH}


def missing_feature(spec: ModelSpec) -> str | None:
    """Say what of a model the kernels lack, if anything."""
    if spec.head_dim % _HEAD_DIM_MULTIPLE:
        return f"the head size {spec.head_dim} is no multiple of {_HEAD_DIM_MULTIPLE}"
    if spec.rope.rotary_dim is not None and spec.rope.attention_factor != 1:
        return "a part of each head rotates, and is scaled by an attention factor"
    return None


def decoder_shape(spec: ModelSpec) -> DecoderShape:
    """Return a model's shape as the kernels name it."""
    local = spec.windowed_rope or spec.rope
    return DecoderShape(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        norm_epsilon=spec.norm_epsilon,
        activation=_ACTIVATIONS[spec.activation],
        attention_scale=spec.attention_scale,
        attention_softcap=spec.attention_softcap,
        logit_softcap=spec.logit_softcap,
        embedding_scale=spec.embedding_scale,
        rope_scale=(spec.rope.attention_factor, local.attention_factor),
    )


def load_decoder(
    matrices: Matrices, num_positions: int, progress: Callable[[float], None]
) -> DecoderWeights:
    """Read and pack a model's weights.

    Parameters
    ----------
    num_positions
        Most tokens of one sequence, on which some rotary scalings depend.
    progress
        Hears the fraction that is done.

    Raises
    ------
    ModelError
        A tensor is missing, damaged, of another shape, or of a type that is not supported.
    """
    source = matrices.source
    spec = source.spec
    embedding = matrices.pack(Matrix(tensors.EMBEDDING, spec.vocab_size, spec.hidden_size))
    head = embedding
    if source.find(tensors.HEAD) is not None or not spec.ties_embeddings:
        head = matrices.pack(Matrix(tensors.HEAD, spec.vocab_size, spec.hidden_size))
    layers = []
    for index in range(spec.num_layers):
        layers.append(_load_layer(matrices, index))
        progress((index + 1) / spec.num_layers)
    return DecoderWeights(
        embedding=embedding,
        head=head,
        final_norm=source.vector(tensors.final_norm(spec)),
        layers=tuple(layers),
        inverse_frequencies=_read_frequencies(source, num_positions),
    )


def _load_layer(matrices: Matrices, index: int) -> LayerWeights:
    source, spec = matrices.source, matrices.source.spec
    packed = {
        role: matrices.pack(matrix) for role, matrix in tensors.layer_matrices(spec, index).items()
    }
    vectors = {
        role: source.vector(vector) for role, vector in tensors.layer_vectors(spec, index).items()
    }
    window = spec.window_of(index)
    rope = 1 if window and spec.windowed_rope is not None else 0
    return LayerWeights(**packed, **vectors, window=window, rope=rope)


def _read_frequencies(source: WeightSource, num_positions: int) -> tuple[torch.Tensor, ...]:
    """Return [head_dim / 2], float32, once or twice; GGUF files state llama3's as factors."""
    spec = source.spec
    frequencies = inverse_frequencies(spec.rope, spec.head_dim, num_positions)
    if source.find(tensors.ROPE_FACTORS) is not None:
        frequencies = frequencies / source.tensor(tensors.ROPE_FACTORS, (spec.head_dim // 2,))
    if spec.windowed_rope is None:
        return (frequencies,)
    return frequencies, inverse_frequencies(spec.windowed_rope, spec.head_dim, num_positions)
