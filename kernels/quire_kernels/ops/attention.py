"""Paged attention: one call for decode, prefill, chunked and mixed steps."""

from __future__ import annotations

import torch

from quire_kernels.errors import ArgumentError
from quire_kernels.ops import attention_decode, attention_prefill
from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.checks import (
    BLOCK_SIZES,
    HEAD_DIMS,
    check_device,
    check_dtype,
    check_last_contiguous,
    check_like,
    check_shape,
    check_supported,
)

__all__ = ["AttentionBatch", "AttentionOptions", "paged_attention"]


def paged_attention(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
    *,
    k_new: torch.Tensor | None = None,
    v_new: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    checked: bool = True,
) -> torch.Tensor:
    """Attention of every new token over its sequence's keys.

    The cache must already hold all `context_lens` tokens. `k_new` and `v_new` are optional copies
    of the new tokens' keys and values in token order: prefill then reads those without a gather.
    No host synchronization; safe to capture in a CUDA graph.

    Parameters
    ----------
    q
        [num_tokens, num_q_heads, head_dim] bf16 or fp16, device; last dimension contiguous.
    key_cache, value_cache
        [num_blocks, num_kv_heads, block_size, head_dim], as q; views of one layer, any strides on
        the first three dimensions. Every element must be finite (allocate the cache zeroed).
    batch
        Lengths and block table of the step.
    options
        Scale, mask, soft-cap.
    k_new, v_new
        [num_tokens, num_kv_heads, head_dim], as q; both or neither.
    out
        [num_tokens, num_q_heads, head_dim], as q; allocated when absent.
    checked
        False: shapes, strides and dtypes are those of a call that was checked.

    Returns
    -------
    torch.Tensor
        `out`. Rows past the last sequence's end are not written.

    Raises
    ------
    ArgumentError
        Shapes, dtypes, devices or strides do not fit together.
    UnsupportedError
        No kernel for the head dim, block size, dtype or device.

    Examples
    --------
    >>> batch = AttentionBatch(cu_seqlens_q, context_lens, table, 8, 4096)
    >>> paged_attention(q, cache[:, 0, 0], cache[:, 0, 1], batch, AttentionOptions(128**-0.5))
    """
    out = torch.empty_like(q) if out is None else out
    if checked:
        _check(q, key_cache, value_cache, batch)
        _check_fresh(q, key_cache, k_new, v_new)
        _check_out(out, q)
    if options.fixed:
        attention_prefill.launch_fixed(q, key_cache, value_cache, out, batch, options)
        return out
    if batch.num_decodes:
        attention_decode.launch(q, key_cache, value_cache, out, batch, options)
    if batch.num_prefills:
        attention_prefill.launch(q, key_cache, value_cache, out, batch, options, k_new, v_new)
    return out


def _check(
    q: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, batch: AttentionBatch
) -> None:
    check_dtype("q", q)
    check_shape("q", q, (None, None, None))
    check_shape("key_cache", key_cache, (None, None, None, q.shape[2]))
    check_shape("value_cache", value_cache, tuple(key_cache.shape))
    check_supported("head_dim", q.shape[2], HEAD_DIMS)
    check_supported("block_size", key_cache.shape[2], BLOCK_SIZES)
    check_device("block_table", batch.block_table, q)
    check_last_contiguous("q", q)
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        check_like(name, cache, q)
        check_last_contiguous(name, cache)
    if q.shape[1] % key_cache.shape[1]:
        raise ArgumentError(f"{q.shape[1]} query heads are no multiple of {key_cache.shape[1]}")


def _check_fresh(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    k_new: torch.Tensor | None,
    v_new: torch.Tensor | None,
) -> None:
    if (k_new is None) != (v_new is None):
        raise ArgumentError("k_new and v_new come together or not at all")
    for name, fresh in (("k_new", k_new), ("v_new", v_new)):
        if fresh is not None:
            check_like(name, fresh, q)
            check_shape(name, fresh, (q.shape[0], key_cache.shape[1], q.shape[2]))
            check_last_contiguous(name, fresh)


def _check_out(out: torch.Tensor, q: torch.Tensor) -> None:
    check_like("out", out, q)
    check_shape("out", out, tuple(q.shape))
    check_last_contiguous("out", out)
