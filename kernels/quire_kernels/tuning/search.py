"""Tune the attention kernels on a device that no shipped table covers, once, at engine start.

The winners go to `$QUIRE_CACHE/tuning-<arch>.json`, where `tables.lookup` finds them from then on.
Takes about a minute, most of it compilation; never runs during a graph capture.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable

import torch

from quire_kernels.errors import UnsupportedError
from quire_kernels.ops import attention_decode, attention_prefill
from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.device import device_of
from quire_kernels.tuning.tables import SHIPPED, LaunchConfig, find, remember

_log = logging.getLogger(__name__)

DECODE = tuple(
    LaunchConfig(16, block_n, num_warps, num_stages)
    for block_n, num_warps, num_stages in (
        (64, 4, 5),
        (32, 4, 5),
        (64, 4, 3),
        (32, 4, 3),
        (32, 2, 7),
    )
)
PREFILL = tuple(
    LaunchConfig(*tile)
    for tile in ((128, 64, 8, 5), (128, 64, 8, 3), (128, 32, 8, 3), (64, 64, 4, 3), (64, 32, 4, 2))
)


def fastest(
    operation: str,
    candidates: Iterable[LaunchConfig],
    measure: Callable[[LaunchConfig], float],
) -> LaunchConfig:
    """The candidate with the least `measure` in milliseconds; what the device can't run is skipped.

    Raises
    ------
    UnsupportedError
        No candidate runs on the device.
    """
    best, best_ms, problem = None, math.inf, "no candidates"
    for config in candidates:
        try:
            taken = measure(config)
        except Exception as error:  # noqa: BLE001 - too much shared memory, or no such instruction
            problem = str(error)
            continue
        if taken < best_ms:
            best, best_ms = config, taken
    if best is None:
        raise UnsupportedError(f"{operation}: no configuration runs on this device: {problem}")
    return best


def tune_attention(
    q: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor
) -> dict[str, LaunchConfig]:
    """Tune what is missing for these heads, head dim and block size, and remember it.

    Parameters
    ----------
    q
        [num_tokens, num_q_heads, head_dim], device: at least 1,024 tokens.
    key_cache, value_cache
        [num_blocks, num_kv_heads, block_size, head_dim], device: enough blocks for them.
    """
    arch, head_dim = device_of(q).arch, q.shape[2]
    found = {}
    for operation, candidates, run in (
        ("decode_attention", DECODE, _decode),
        ("prefill_attention", PREFILL, _prefill),
    ):
        known = find(arch, operation, (("head_dim", head_dim),))
        if known is None or (arch not in SHIPPED and known not in candidates):
            _log.info(
                "%s has no tiles for %s of head size %d: they are timed, once, in up to a minute",
                arch,
                operation,
                head_dim,
            )
            attempt = functools.partial(run, q, key_cache, value_cache)
            known = fastest(operation, candidates, functools.partial(_milliseconds, attempt))
            remember(arch, operation, {"head_dim": head_dim}, known)
        found[operation] = known
    return found


def _milliseconds(attempt: Callable[[LaunchConfig], None], config: LaunchConfig) -> float:
    from triton.testing import do_bench

    return float(do_bench(lambda: attempt(config), warmup=5, rep=20, return_mode="median"))


def _batch(key_cache: torch.Tensor, num_seqs: int, query_len: int) -> AttentionBatch:
    num_blocks, _, block_size, _ = key_cache.shape
    blocks_per_seq = min((num_blocks - 1) // num_seqs, 2048 // block_size)
    table = 1 + torch.arange(num_seqs * blocks_per_seq, device=key_cache.device)
    return AttentionBatch(
        cu_seqlens_q=query_len * torch.arange(num_seqs + 1, device=key_cache.device).int(),
        context_lens=torch.full_like(table[:num_seqs], blocks_per_seq * block_size).int(),
        block_table=table.view(num_seqs, -1).int(),
        num_decodes=num_seqs if query_len == 1 else 0,
        max_context_len=blocks_per_seq * block_size,
    )


def _decode(
    q: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, config: LaunchConfig
) -> None:
    num_seqs = min(64, key_cache.shape[0] - 1)
    batch = _batch(key_cache, num_seqs, 1)
    queries = q[:num_seqs]
    attention_decode.launch_configured(
        queries, key_cache, value_cache, torch.empty_like(queries), batch,
        AttentionOptions(q.shape[2] ** -0.5), config, 1,
    )  # fmt: skip


def _prefill(
    q: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, config: LaunchConfig
) -> None:
    batch = _batch(key_cache, 1, 1)
    query_len = min(q.shape[0], batch.max_context_len)
    queries = q[:query_len]
    attention_prefill.launch_portable(
        queries, key_cache, value_cache, torch.empty_like(queries),
        _batch(key_cache, 1, query_len), AttentionOptions(q.shape[2] ** -0.5), None, None, config,
    )  # fmt: skip
