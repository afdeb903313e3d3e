"""The decoder of all families: weights as plain tensors, one function per step.

Matrices are kept input-major, [inputs, outputs]: with few rows, as in a decode step, torch's
product `x @ w` is a third faster so on a CPU than with [outputs, inputs]. Query, key and value are
one matrix, and so are gate and up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import gelu, rms_norm, silu

from quire_engine.models import tensors
from quire_engine.models.attention import PagedAttention
from quire_engine.models.attention_plan import AttentionPlan
from quire_engine.models.config import ModelSpec
from quire_engine.models.loading.base import WeightSource
from quire_engine.models.rope import RotaryEmbedding, rotate

_HEADS = ("query", "key", "value")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer."""

    attention_norm: torch.Tensor
    """[hidden]"""
    query_key_value: torch.Tensor
    """[hidden, (num_heads + 2 * num_kv_heads) * head_dim]"""
    attention_output: torch.Tensor
    """[num_heads * head_dim, hidden]"""
    mlp_norm: torch.Tensor
    """[hidden]"""
    gate_up: torch.Tensor
    """[hidden, 2 * intermediate]"""
    down: torch.Tensor
    """[intermediate, hidden]"""
    bias: torch.Tensor | None
    """[(num_heads + 2 * num_kv_heads) * head_dim]: of query, key and value. None here and below:
    the model has none."""
    query_norm: torch.Tensor | None
    """[head_dim]"""
    key_norm: torch.Tensor | None
    """[head_dim]"""
    post_attention_norm: torch.Tensor | None
    """[hidden]"""
    post_mlp_norm: torch.Tensor | None
    """[hidden]"""


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All of a decoder, float32."""

    embedding: torch.Tensor
    """[hidden, vocab]: the very tensor `head` is, where the model ties them."""
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    """[hidden]"""
    head: torch.Tensor
    """[hidden, vocab]"""
    rope_factors: torch.Tensor | None
    """[head_dim / 2]: divides the rotary frequencies, where the files have it."""


class Decoder:
    """Computes hidden states and logits.

    Parameters
    ----------
    num_positions
        Most tokens of one sequence.
    """

    def __init__(self, spec: ModelSpec, weights: DecoderWeights, num_positions: int) -> None:
        self.spec = spec
        self.num_positions = num_positions
        """Most tokens of one sequence."""
        self._weights = weights
        self._rope = RotaryEmbedding(
            spec.rope,
            head_dim=spec.head_dim,
            num_positions=num_positions,
            factors=weights.rope_factors,
        )
        self._windowed_rope = self._rope
        if spec.windowed_rope is not None:
            self._windowed_rope = RotaryEmbedding(
                spec.windowed_rope, head_dim=spec.head_dim, num_positions=num_positions
            )
        self._activate = silu if spec.activation == "silu" else partial(gelu, approximate="tanh")

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: PagedAttention,
        plans: Mapping[int, AttentionPlan],
    ) -> torch.Tensor:
        """Run all layers over a step's tokens; their keys and values go into the cache.

        Parameters
        ----------
        token_ids, positions
            [num_tokens], int64.
        plans
            By window, one for each of `ModelSpec.windows`.

        Returns
        -------
        torch.Tensor
            [num_tokens, hidden], before the final norm.
        """
        spec = self.spec
        hidden = self._weights.embedding.index_select(1, token_ids).t().contiguous()
        hidden = hidden * spec.embedding_scale
        angles = self._rope.at(positions)
        windowed = angles if spec.windowed_rope is None else self._windowed_rope.at(positions)
        for index, layer in enumerate(self._weights.layers):
            window = spec.window_of(index)
            normed = self._norm(hidden, layer.attention_norm)
            query, key, value = self._project(layer, normed, windowed if window else angles)
            attended = attention.attend(index, plans[window], query, key, value)
            hidden = self._add_product(
                hidden, attended, layer.attention_output, layer.post_attention_norm
            )
            normed = self._norm(hidden, layer.mlp_norm)
            gate, up = (normed @ layer.gate_up).chunk(2, dim=-1)
            gated = self._activate(gate).mul_(up)
            hidden = self._add_product(hidden, gated, layer.down, layer.post_mlp_norm)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Score the vocabulary.

        Parameters
        ----------
        hidden
            [num_rows, hidden], as `forward` returns it.

        Returns
        -------
        torch.Tensor
            [num_rows, vocab], float32.
        """
        logits = self.final_states(hidden) @ self._weights.head
        cap = self.spec.logit_softcap
        return torch.tanh(logits / cap) * cap if cap else logits

    def final_states(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize what `forward` returns: [num_tokens, hidden], float32."""
        return self._norm(hidden, self._weights.final_norm)

    def _norm(self, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(values, weight.shape, weight, self.spec.norm_epsilon)

    def _add_product(
        self,
        hidden: torch.Tensor,
        values: torch.Tensor,
        matrix: torch.Tensor,
        norm: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return hidden + values @ matrix, the product normalized where the model has a norm."""
        if norm is None:
            return torch.addmm(hidden, values, matrix)
        return hidden + self._norm(values @ matrix, norm)

    def _project(
        self, layer: LayerWeights, normed: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Compute query, key and value heads: [num_tokens, heads, head_dim]; rotate two."""
        spec = self.spec
        fused = normed @ layer.query_key_value
        if layer.bias is not None:
            fused += layer.bias
        heads = fused.view(len(fused), -1, spec.head_dim)
        counts = [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads]
        query, key, value = torch.split(heads, counts, dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = self._norm(query, layer.query_norm), self._norm(key, layer.key_norm)
        return rotate(query, *angles), rotate(key, *angles), value


def load_decoder_weights(source: WeightSource, progress: Callable[[float], None]) -> DecoderWeights:
    """Read and fuse a model's weights; `progress` hears the fraction that is done.

    Raises
    ------
    ModelError
        A tensor is missing, damaged, of another shape, or of a type that is not supported.
    """
    spec = source.spec
    vocabulary = (spec.vocab_size, spec.hidden_size)
    embedding = _transposed(source.tensor(tensors.EMBEDDING, vocabulary))
    head = embedding
    if source.find(tensors.HEAD) is not None or not spec.ties_embeddings:
        head = _transposed(source.tensor(tensors.HEAD, vocabulary))
    layers = []
    for index in range(spec.num_layers):
        layers.append(_load_layer(source, index))
        progress((index + 1) / spec.num_layers)
    factors = None
    if source.find(tensors.ROPE_FACTORS) is not None:
        factors = source.tensor(tensors.ROPE_FACTORS, (spec.head_dim // 2,))
    final_norm = source.vector(tensors.final_norm(spec))
    return DecoderWeights(embedding, tuple(layers), final_norm, head, factors)


def _load_layer(source: WeightSource, index: int) -> LayerWeights:
    matrices = tensors.layer_matrices(source.spec, index)
    vectors = {
        role: source.vector(vector)
        for role, vector in tensors.layer_vectors(source.spec, index).items()
    }

    def read(*roles: str) -> torch.Tensor:
        return _transposed(*(source.matrix(matrices[role]) for role in roles))

    biases = [vectors[f"{role}_bias"] for role in _HEADS if source.spec.has_biases]
    return LayerWeights(
        attention_norm=vectors["attention_norm"],
        query_key_value=read(*_HEADS),
        attention_output=read("output"),
        mlp_norm=vectors["mlp_norm"],
        gate_up=read("gate", "up"),
        down=read("down"),
        bias=torch.cat(biases) if biases else None,
        query_norm=vectors.get("query_norm"),
        key_norm=vectors.get("key_norm"),
        post_attention_norm=vectors.get("post_attention_norm"),
        post_mlp_norm=vectors.get("post_mlp_norm"),
    )


def _transposed(*weights: torch.Tensor) -> torch.Tensor:
    """Stack [outputs, inputs] matrices and return [inputs, sum of outputs], contiguous."""
    return torch.cat([weight.t() for weight in weights], dim=1).contiguous()
