"""Launch of the prefill kernels: portable Triton, or the Hopper one where it applies."""

from __future__ import annotations

import dataclasses

import torch

from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.attention_decode import LOG2_E, next_power_of_two
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.triton.attention_prefill import prefill_attention_kernel
from quire_kernels.tuning.tables import LaunchConfig, lookup

FIXED = LaunchConfig(block_m=64, block_n=64, num_warps=4, num_stages=2)
"""Of batch-invariant attention, on every architecture: what fits the smallest shared memory."""
FIXED_HEAD_DIM = 128
FIXED_WIDE = LaunchConfig(block_m=64, block_n=16, num_warps=4, num_stages=2)
"""The same for larger heads."""


def launch(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
    k_new: torch.Tensor | None,
    v_new: torch.Tensor | None,
) -> None:
    """Attend for the sequences after the decodes; arguments as in `paged_attention`."""
    device = device_of(q)
    if device.arch == "sm90":
        from quire_kernels.ops import attention_hopper

        if attention_hopper.applies(q, key_cache, value_cache, options, k_new, v_new):
            attention_hopper.launch(q, key_cache, value_cache, out, batch, options, k_new, v_new)
            return
    config = lookup(device.arch, "prefill_attention", head_dim=q.shape[2])
    launch_portable(q, key_cache, value_cache, out, batch, options, k_new, v_new, config)


def launch_fixed(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
) -> None:
    """Attend for all sequences by what the cache holds, decodes as chunks of one token.

    Every tile of keys is masked: the loop without masks may round in other places, and which keys
    it takes depends on the chunk.
    """
    chunks = dataclasses.replace(batch, num_decodes=0, max_prefill_tokens=None)
    config = FIXED_WIDE if q.shape[2] > FIXED_HEAD_DIM else FIXED
    launch_portable(q, key_cache, value_cache, out, chunks, options, None, None, config)


def launch_portable(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
    k_new: torch.Tensor | None,
    v_new: torch.Tensor | None,
    config: LaunchConfig,
) -> None:
    """Attend with the portable kernel and a given configuration; the tuner calls this too."""
    skip, head_dim, num_kv_heads = batch.num_decodes, q.shape[2], key_cache.shape[1]
    group = q.shape[1] // num_kv_heads
    block_m = max(config.block_m, next_power_of_two(group))
    block_q = block_m // group
    num_tiles = batch.num_prefill_tiles(q.shape[0], block_q)
    fresh = k_new is not None and v_new is not None
    keys = k_new if k_new is not None else q
    values = v_new if v_new is not None else q
    table = batch.block_table[skip:]
    launch_kernel(
        prefill_attention_kernel, (num_kv_heads, num_tiles),
        q, key_cache, value_cache, keys, values, out,
        batch.cu_seqlens_q[skip:], batch.context_lens[skip:], table,
        batch.num_prefills, options.scale * LOG2_E, options.soft_cap or 1.0,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        *key_cache.stride()[:3], *value_cache.stride()[:3],
        keys.stride(0), keys.stride(1), values.stride(0), values.stride(1), table.stride(0),
        GROUP=group, BLOCK_Q=block_q, BLOCK_M=block_m, BLOCK_N=config.block_n,
        HEAD_DIM=head_dim, BLOCK_D=next_power_of_two(head_dim), BLOCK_SIZE=key_cache.shape[2],
        CAUSAL=options.causal, WINDOW=options.window or 0,
        SOFT_CAP=options.soft_cap is not None, FRESH=fresh, FIXED=options.fixed,
        num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
