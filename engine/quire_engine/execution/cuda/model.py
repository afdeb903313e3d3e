"""The decoder on the device: nine launches a layer, activations in one type, residual as well.

qkv product | rope + cache write | attention | output product | add + norm
gate-up product | gated | down product | add + norm (the next layer's first)

Of many rows, the gate-up product and what gates it are one.
"""

import torch

from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.cuda.weights import DecoderWeights
from quire_engine.models.config import ModelSpec
from quire_engine.models.rope import RotaryEmbedding
from quire_kernels.ops.attention import paged_attention
from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.linear import fixed_gated_linear, fixed_linear, gated_linear, linear
from quire_kernels.ops.norm import add_rms_norm, rms_norm
from quire_kernels.ops.rope import HeadNorm, rope_and_cache


class CudaDecoder:
    """Computes hidden states and logits of a step's tokens.

    Parameters
    ----------
    num_positions
        Most tokens of one sequence.
    is_fixed
        Whether a token's results have the same bits in every batch, for which it is slower.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: DecoderWeights,
        num_positions: int,
        platform: Platform,
        *,
        is_fixed: bool = False,
    ) -> None:
        self.spec = spec
        self.num_positions = num_positions
        self._weights = weights
        self.is_fixed = is_fixed
        self._linear = fixed_linear if is_fixed else linear
        self._gated_linear = fixed_gated_linear if is_fixed else gated_linear
        self._options = AttentionOptions(spec.head_dim**-0.5, fixed=is_fixed)
        self._heads = [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads]
        rope = RotaryEmbedding(
            spec.rope,
            head_dim=spec.head_dim,
            num_positions=num_positions,
            factors=weights.rope_factors,
        )
        table = torch.cat(rope.at(torch.arange(num_positions)), dim=-1).squeeze(1)
        self._cos_sin = table.to(platform.device)
        self._norms = [
            HeadNorm(*layer.head_norms, spec.norm_epsilon) if layer.head_norms else None
            for layer in weights.layers
        ]
        self._caches: list[tuple[torch.Tensor, torch.Tensor]] = []

    def attach(self, cache: torch.Tensor) -> None:
        """Use this KV memory.

        Parameters
        ----------
        cache
            [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim], device.
        """
        self._caches = [(cache[:, i, 0], cache[:, i, 1]) for i in range(cache.shape[1])]

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        batch: AttentionBatch,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run all layers; keys and values go into the cache.

        Parameters
        ----------
        token_ids, positions, slots
            [num_tokens] int32, device.
        keep
            [num_kept] int32, device: tokens whose hidden states are wanted, None for all. The
            last layer's products are left out for the others, and so is its attention for none.

        Returns
        -------
        torch.Tensor
            [num_kept, hidden], after the final norm.
        """
        weights, epsilon = self._weights, self.spec.norm_epsilon
        residual = weights.embedding.index_select(0, token_ids)
        x = rms_norm(residual, weights.layers[0].attention_norm, epsilon)
        last = len(weights.layers) - 1
        for index, layer in enumerate(weights.layers):
            checked = index == 0  # the others have the same shapes
            heads = self._linear(x, layer.query_key_value, checked=checked).view(
                len(x), -1, self.spec.head_dim
            )
            query, key, value = torch.split(heads, self._heads, 1)
            caches = self._caches[index]
            rope_and_cache(
                query, key, value, positions, self._cos_sin, *caches, slots,
                norm=self._norms[index], checked=checked,
            )  # fmt: skip
            if index == last and keep is not None and not len(keep):
                return residual[:0]
            attended = heads.new_empty(query.shape)
            paged_attention(
                query, *caches, batch, self._options, k_new=key, v_new=value, out=attended,
                checked=checked,
            )  # fmt: skip
            attended = attended.flatten(1)
            if index == last and keep is not None:
                attended = attended.index_select(0, keep)
                residual = residual.index_select(0, keep)
            x = self._linear(attended, layer.attention_output, checked=checked)
            add_rms_norm(x, residual, layer.mlp_norm, epsilon, out=x, checked=checked)
            x = self._gated_linear(x, layer.gate_up, checked=checked)
            x = self._linear(x, layer.down, checked=checked)
            follows = (
                weights.final_norm if index == last else (weights.layers[index + 1].attention_norm)
            )
            add_rms_norm(x, residual, follows, epsilon, out=x, checked=checked)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Score the vocabulary: [num_rows, vocab], in the model's type.

        Parameters
        ----------
        hidden
            [num_rows, hidden], as `forward` returns it.
        """
        return self._linear(hidden, self._weights.head)
