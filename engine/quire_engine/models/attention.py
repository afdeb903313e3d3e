"""Attention over a paged KV cache, in plain torch."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from quire_engine.models.attention_plan import AttentionPlan, CacheLayout

Attend = Callable[..., torch.Tensor]


class PagedAttention:
    """Writes keys and values into the cache and attends over it.

    Parameters
    ----------
    cache
        [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim], contiguous. Only what was
        written for a row is read for it.
    scale
        Of query times key; None: head_dim ** -0.5.
    softcap
        Scores become cap * tanh(score / cap); 0: they stay.
    """

    def __init__(
        self,
        cache: torch.Tensor,
        layout: CacheLayout,
        *,
        scale: float | None = None,
        softcap: float = 0.0,
    ) -> None:
        self._rows = cache.view(-1, layout.head_dim)
        self._layout = layout
        self._attend: Attend = scaled_dot_product_attention
        if softcap:
            self._attend = partial(_capped_attention, softcap=softcap)
        self._scale = layout.head_dim**-0.5 if scale is None else scale

    def attend(
        self,
        layer: int,
        plan: AttentionPlan,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """Store a step's keys and values, then answer its queries.

        Parameters
        ----------
        query
            [num_tokens, num_heads, head_dim]
        key, value
            [num_tokens, num_kv_heads, head_dim]

        Returns
        -------
        torch.Tensor
            [num_tokens, num_heads * head_dim]
        """
        side = self._layout.rows_per_side
        keys = self._rows[layer * 2 * side :]
        values = self._rows[(layer * 2 + 1) * side :]
        keys.index_copy_(0, plan.write_rows, key.reshape(-1, self._layout.head_dim))
        values.index_copy_(0, plan.write_rows, value.reshape(-1, self._layout.head_dim))
        output = torch.empty_like(query)
        for group in plan.groups:
            shape = (-1, self._layout.num_kv_heads, group.num_keys, self._layout.head_dim)
            group_keys = keys.index_select(0, group.key_rows).view(shape)
            group_values = values.index_select(0, group.key_rows).view(shape)
            attend = self._attend_chunk if group.is_chunk else self._attend_decodes
            output[group.tokens] = attend(query[group.tokens], group_keys, group_values, group.mask)
        return output.flatten(1)

    def _attend_decodes(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """One query per row; the heads that share a KV head are taken as its queries."""
        grouped = query.view(len(query), keys.shape[1], -1, query.shape[2])
        output = self._attend(grouped, keys, values, attn_mask=mask, scale=self._scale)
        return output.reshape(query.shape)

    def _attend_chunk(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Many queries of one row."""
        output = self._attend(
            query.transpose(0, 1)[None],
            keys,
            values,
            attn_mask=mask,
            scale=self._scale,
            enable_gqa=True,
        )
        return output[0].transpose(0, 1)


def _capped_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    attn_mask: torch.Tensor | None,
    scale: float,
    softcap: float,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Do what torch's function does, with scores capped before they are masked."""
    if enable_gqa:
        repeats = query.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(repeats, dim=1) for x in (keys, values))
    scores = softcap * torch.tanh(query @ keys.transpose(-1, -2) * (scale / softcap))
    if attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(dim=-1) @ values
