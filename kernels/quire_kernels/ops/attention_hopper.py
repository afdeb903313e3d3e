"""Launch of the Hopper prefill kernel, and where it applies."""

from __future__ import annotations

import torch

from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.attention_decode import LOG2_E
from quire_kernels.ops.descriptors import descriptor, is_addressable
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.triton.attention_hopper import hopper_prefill_kernel

BLOCK_M = 128
BLOCK_N = 128
BOX = (16, 64)
STAGES = 2
CONSUMER_REGISTERS = 232
PRODUCER_REGISTERS = 40


def applies(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    options: AttentionOptions,
    k_new: torch.Tensor | None,
    v_new: torch.Tensor | None,
) -> bool:
    """Whether this kernel takes the call: plain causal or full attention, TMA-addressable rows."""
    if options.window is not None or options.soft_cap is not None or options.scale <= 0:
        return False
    if q.shape[2] not in (64, 128) or q.shape[1] // key_cache.shape[1] > BLOCK_M:
        return False
    fresh = [tensor for tensor in (k_new, v_new) if tensor is not None]
    return (
        all(_page_rows_are_regular(cache) for cache in (key_cache, value_cache))
        and all(is_addressable(tensor) for tensor in fresh)
        and all(tensor.stride(1) == q.shape[2] for tensor in fresh)
    )


def _page_rows_are_regular(cache: torch.Tensor) -> bool:
    """Whether the cache is one matrix of rows: heads and slots dense, blocks whole rows apart."""
    num_blocks, _, block_size, head_dim = cache.shape
    block_stride, head_stride, slot_stride, _ = cache.stride()
    return (
        slot_stride == head_dim
        and head_stride == block_size * head_dim
        and block_stride % head_dim == 0
        and num_blocks * (block_stride // head_dim) < 2**31
        and is_addressable(cache)
    )


def launch(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
    k_new: torch.Tensor | None,
    v_new: torch.Tensor | None,
    *,
    stages: int = STAGES,
) -> None:
    """Attend for the sequences after the decodes; arguments as in `paged_attention`."""
    skip, head_dim, num_kv_heads = batch.num_decodes, q.shape[2], key_cache.shape[1]
    group = q.shape[1] // num_kv_heads
    block_q = BLOCK_M // group
    k_rows, v_rows = _cache_rows(key_cache), _cache_rows(value_cache)
    fresh = k_new is not None and v_new is not None
    keys = _token_rows(k_new) if k_new is not None else k_rows
    values = _token_rows(v_new) if v_new is not None else v_rows
    tile = (BLOCK_N, head_dim)
    num_tiles = batch.num_prefill_tiles(q.shape[0], block_q)
    launch_kernel(
        hopper_prefill_kernel, (num_kv_heads, num_tiles),
        q, out, descriptor(k_rows, BOX), descriptor(v_rows, BOX), value_cache,
        descriptor(keys, tile), descriptor(values, tile), descriptor(values, BOX), values,
        batch.cu_seqlens_q[skip:], batch.context_lens[skip:], batch.block_table[skip:],
        batch.num_prefills, options.scale * LOG2_E,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        values.stride(0), key_cache.stride(0) // head_dim, batch.block_table.stride(0),
        GROUP=group, BLOCK_Q=block_q, BLOCK_N=BLOCK_N, HEAD_DIM=head_dim,
        BLOCK_SIZE=key_cache.shape[2], STAGES=stages, FRESH=fresh, CAUSAL=options.causal,
        CONSUMER_REGISTERS=CONSUMER_REGISTERS, PRODUCER_REGISTERS=PRODUCER_REGISTERS,
        num_warps=4,
    )  # fmt: skip


def _cache_rows(cache: torch.Tensor) -> torch.Tensor:
    """[rows, head_dim] over the cache: row = block * (block stride) + head * block_size + slot."""
    num_blocks, num_heads, block_size, head_dim = cache.shape
    rows = (num_blocks - 1) * (cache.stride(0) // head_dim) + num_heads * block_size
    return cache.as_strided((rows, head_dim), (head_dim, 1))


def _token_rows(fresh: torch.Tensor) -> torch.Tensor:
    """[num_tokens, num_kv_heads * head_dim] over fresh keys or values."""
    num_tokens, num_heads, head_dim = fresh.shape
    return fresh.as_strided((num_tokens, num_heads * head_dim), (fresh.stride(0), 1))
