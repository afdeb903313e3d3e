"""Attention in plain torch, one sequence at a time: what the kernels are checked against."""

from __future__ import annotations

import torch

from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions


def gather_pages(cache: torch.Tensor, blocks: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """The first `num_tokens` rows of a sequence.

    Parameters
    ----------
    cache
        [num_blocks, num_kv_heads, block_size, head_dim], any dtype.
    blocks
        [max_blocks] int32, one row of the block table.

    Returns
    -------
    torch.Tensor
        [num_kv_heads, num_tokens, head_dim].
    """
    block_size = cache.shape[2]
    used = blocks[: -(-num_tokens // block_size)].long()
    pages = cache[used].transpose(0, 1)
    return pages.reshape(cache.shape[1], -1, cache.shape[3])[:, :num_tokens]


def attention_mask(
    query_len: int, context_len: int, options: AttentionOptions, device: torch.device
) -> torch.Tensor:
    """[query_len, context_len] bool: which keys each new token may see."""
    row = torch.arange(context_len - query_len, context_len, device=device)[:, None]
    column = torch.arange(context_len, device=device)[None, :]
    visible = torch.ones(query_len, context_len, dtype=torch.bool, device=device)
    if options.causal:
        visible &= column <= row
    if options.window is not None:
        visible &= column > row - options.window
    return visible


def paged_attention_reference(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
    *,
    compute_dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Same contract as `quire_kernels.ops.paged_attention`, keys read from the cache alone.

    Returns
    -------
    torch.Tensor
        [num_tokens, num_q_heads, head_dim] in `compute_dtype`.
    """
    out = torch.zeros(q.shape, dtype=compute_dtype, device=q.device)
    starts = batch.cu_seqlens_q.tolist()
    group = q.shape[1] // key_cache.shape[1]
    for seq, context_len in enumerate(batch.context_lens.tolist()):
        begin, end = starts[seq], starts[seq + 1]
        if begin == end:
            continue
        blocks = batch.block_table[seq]
        keys = gather_pages(key_cache, blocks, context_len).to(compute_dtype)
        values = gather_pages(value_cache, blocks, context_len).to(compute_dtype)
        keys = keys.repeat_interleave(group, 0)
        values = values.repeat_interleave(group, 0)
        query = q[begin:end].transpose(0, 1).to(compute_dtype)
        logits = query @ keys.transpose(1, 2) * options.scale
        if options.soft_cap is not None:
            logits = options.soft_cap * torch.tanh(logits / options.soft_cap)
        visible = attention_mask(end - begin, context_len, options, q.device)
        weights = logits.masked_fill(~visible, float("-inf")).softmax(-1)
        out[begin:end] = (weights @ values).transpose(0, 1)
    return out
