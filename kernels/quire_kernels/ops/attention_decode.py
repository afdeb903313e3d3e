"""Launch of the decode kernels: split choice, partial results, merge."""

from __future__ import annotations

import torch

from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.device import Device, device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.ops.splits import choose_splits
from quire_kernels.triton.attention_decode import decode_attention_kernel, merge_splits_kernel
from quire_kernels.tuning.tables import LaunchConfig, lookup

LOG2_E = 1.4426950408889634
CROWDED = 1.9
"""Programs for each multiprocessor from which on two share it, with a shallower pipeline each: one
fills its own while the other reads."""


def next_power_of_two(value: int) -> int:
    """The smallest power of two that is at least `value`."""
    return 1 << (value - 1).bit_length()


def launch(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
) -> None:
    """Attend for the first `batch.num_decodes` rows of `q`; arguments as in `paged_attention`."""
    device = device_of(q)
    config = config_for(batch.num_decodes * key_cache.shape[1], q.shape[2], device)
    num_splits = splits_for(batch, key_cache.shape[1], device, config, options)
    launch_configured(q, key_cache, value_cache, out, batch, options, config, num_splits)


def config_for(num_programs: int, head_dim: int, device: Device) -> LaunchConfig:
    """What the table says of so many programs with one split each."""
    waves = num_programs / device.num_multiprocessors
    return lookup(
        device.arch,
        "decode_attention",
        head_dim=head_dim,
        crowded=int(waves >= CROWDED),
        half_waves=int(2 * waves + 0.5),
        reads_fast=int(device.reads_fast),
    )


def splits_for(
    batch: AttentionBatch,
    num_kv_heads: int,
    device: Device,
    config: LaunchConfig,
    options: AttentionOptions,
) -> int:
    """How many ranges each context is cut into, from upper bounds alone."""
    reach = batch.max_context_len
    if options.window is not None:
        reach = min(reach, options.window + config.block_n)
    max_tiles = -(-reach // config.block_n)
    if config.splits > 1:
        return min(config.splits, max(max_tiles // 2, 1))
    return choose_splits(
        batch.num_decodes * num_kv_heads,
        device.num_multiprocessors * config.programs_per_sm,
        max_tiles,
    )


def launch_configured(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    batch: AttentionBatch,
    options: AttentionOptions,
    config: LaunchConfig,
    num_splits: int,
) -> None:
    """Attend with a given configuration; the tuner calls this too."""
    num_seqs, num_heads, head_dim = batch.num_decodes, q.shape[1], q.shape[2]
    num_kv_heads = key_cache.shape[1]
    group = num_heads // num_kv_heads
    block_d = next_power_of_two(head_dim)
    rows = num_seqs * num_heads * num_splits if num_splits > 1 else 0
    partial_out = torch.empty((rows, head_dim), dtype=torch.float32, device=q.device)
    partial_lse = torch.empty((rows,), dtype=torch.float32, device=q.device)
    launch_kernel(
        decode_attention_kernel, (num_kv_heads, num_splits, num_seqs),
        q, key_cache, value_cache, out, partial_out, partial_lse,
        batch.context_lens, batch.block_table, options.scale * LOG2_E, options.soft_cap or 1.0,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        *key_cache.stride()[:3], *value_cache.stride()[:3], batch.block_table.stride(0), num_splits,
        GROUP=group, NUM_KV_HEADS=num_kv_heads, SPLIT=num_splits > 1,
        BLOCK_M=max(16, next_power_of_two(group)), BLOCK_N=config.block_n, HEAD_DIM=head_dim,
        BLOCK_D=block_d, BLOCK_SIZE=key_cache.shape[2], WINDOW=options.window or 0,
        SOFT_CAP=options.soft_cap is not None,
        dependent=True, num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    if num_splits > 1:
        launch_kernel(
            merge_splits_kernel, (num_heads, num_seqs),
            partial_out, partial_lse, out, out.stride(0), out.stride(1), num_splits,
            NUM_HEADS=num_heads, BLOCK_SPLITS=next_power_of_two(num_splits),
            HEAD_DIM=head_dim, BLOCK_D=block_d, dependent=True, num_warps=4, num_stages=1,
        )  # fmt: skip
