"""What the kernels must compute, in plain torch; slow, and only for tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import gelu, rms_norm, silu

from quire_kernels.cpu.decoder import StepInputs
from quire_kernels.cpu.layout import Activation
from quire_kernels.cpu.weights import DecoderShape

Vectors = dict[str, torch.Tensor]
"""One layer's plain weights by the names of `LayerWeights`; matrices are [outputs, inputs]."""


def quantize_activations(x: torch.Tensor) -> torch.Tensor:
    """Round to 16 bits in groups of 32 columns, and back: the shape of `x`."""
    groups = x.reshape(x.shape[0], -1, 32)
    scale = groups.abs().amax(-1, keepdim=True) / 32767
    levels = (groups / scale.clamp_min(torch.finfo().tiny)).round()
    return (levels * scale).reshape(x.shape)


def paged_attention(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    layer: int,
    inputs: StepInputs,
    *,
    scale: float,
    softcap: float = 0.0,
    window: int = 0,
) -> torch.Tensor:
    """Attend chunk by chunk; arguments as of `ops.paged_attention`."""
    block_size = kv_cache.shape[4]
    outputs, first = [], 0
    for row, start, count in zip(
        inputs.rows.tolist(), inputs.starts.tolist(), inputs.num_tokens.tolist(), strict=True
    ):
        positions = torch.arange(start + count)
        blocks = inputs.block_tables[row][positions // block_size].long()
        cached = kv_cache[blocks, layer, :, :, positions % block_size].float()
        keys, values = cached[:, 0], cached[:, 1]
        group = query.shape[1] // keys.shape[1]
        chunk = query[first : first + count]
        scores = torch.einsum("qhd,khd->hqk", chunk, keys.repeat_interleave(group, 1)) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        distance = torch.arange(start, start + count)[:, None] - positions
        hidden = (distance < 0) | ((distance >= window) if window else torch.tensor(False))
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(group, 1)))
        first += count
    return torch.cat(outputs)


@dataclass(frozen=True)
class ReferenceDecoder:
    """A decoder with plain float32 weights."""

    shape: DecoderShape
    embedding: torch.Tensor
    head: torch.Tensor
    final_norm: torch.Tensor
    layers: list[Vectors]
    inverse_frequencies: list[torch.Tensor]
    windows: list[int]
    ropes: list[int]
    quantizes: bool = False
    """Whether matrices are multiplied with activations rounded to 16 bits."""

    def step(self, inputs: StepInputs, kv_cache: torch.Tensor) -> torch.Tensor:
        """Compute as `Decoder.step`."""
        states = self.hidden_states(inputs, kv_cache)
        ends = (inputs.num_tokens.cumsum(0) - 1)[inputs.samples]
        logits = self._multiply(states[ends], self.head)
        cap = self.shape.logit_softcap
        return cap * torch.tanh(logits / cap) if cap else logits

    def hidden_states(self, inputs: StepInputs, kv_cache: torch.Tensor) -> torch.Tensor:
        """Compute as `Decoder.hidden_states`."""
        ranges = zip(inputs.starts.tolist(), inputs.num_tokens.tolist(), strict=True)
        positions = torch.cat([torch.arange(start, start + count) for start, count in ranges])
        hidden = self.embedding[inputs.token_ids.long()] * self.shape.embedding_scale
        for index, layer in enumerate(self.layers):
            attended = self._attend(index, layer, hidden, positions, inputs, kv_cache)
            hidden = hidden + self._norm(attended, layer.get("post_attention_norm"))
            inner = self._norm(hidden, layer["mlp_norm"])
            gate, up = self._multiply(inner, layer["gate"]), self._multiply(inner, layer["up"])
            is_silu = self.shape.activation == Activation.SILU
            gate = silu(gate) if is_silu else gelu(gate, approximate="tanh")
            down = self._multiply(gate * up, layer["down"])
            hidden = hidden + self._norm(down, layer.get("post_mlp_norm"))
        return self._norm(hidden, self.final_norm)

    def _attend(
        self,
        index: int,
        layer: Vectors,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        inputs: StepInputs,
        kv_cache: torch.Tensor,
    ) -> torch.Tensor:
        shape = self.shape
        x = self._norm(hidden, layer["attention_norm"])
        heads = {}
        for name in ("query", "key", "value"):
            product = self._multiply(x, layer[name]) + layer.get(f"{name}_bias", torch.zeros(()))
            heads[name] = product.view(len(x), -1, shape.head_dim)
            if f"{name}_norm" in layer:
                heads[name] = self._norm(heads[name], layer[f"{name}_norm"])
        query = self._rotate(heads["query"], positions, self.ropes[index])
        key = self._rotate(heads["key"], positions, self.ropes[index])
        rows = torch.repeat_interleave(inputs.rows.long(), inputs.num_tokens.long())
        blocks = inputs.block_tables[rows, positions // kv_cache.shape[4]].long()
        slots = positions % kv_cache.shape[4]
        kv_cache[blocks, index, 0, :, slots] = key.to(kv_cache.dtype)
        kv_cache[blocks, index, 1, :, slots] = heads["value"].to(kv_cache.dtype)
        scale = shape.head_dim**-0.5 if shape.attention_scale is None else shape.attention_scale
        attended = paged_attention(
            query,
            kv_cache,
            index,
            inputs,
            scale=scale,
            softcap=shape.attention_softcap,
            window=self.windows[index],
        )
        return self._multiply(attended.flatten(1), layer["output"])

    def _rotate(self, heads: torch.Tensor, positions: torch.Tensor, table: int) -> torch.Tensor:
        angles = positions.float()[:, None] * self.inverse_frequencies[table]
        scale = self.shape.rope_scale[table]
        cos, sin = angles.cos()[:, None] * scale, angles.sin()[:, None] * scale
        first, second = heads.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def _multiply(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (quantize_activations(x) if self.quantizes else x) @ weight.T

    def _norm(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if weight is None:
            return x
        return rms_norm(x, (x.shape[-1],), weight, self.shape.norm_epsilon)
