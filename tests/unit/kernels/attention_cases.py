"""Builders of paged batches on odd shapes, shared by the interpreter and the GPU tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quire_kernels.ops.attention import AttentionBatch


@dataclass(frozen=True, eq=False)
class PagedCase:
    """A batch and its tensors; the cache's unused slots hold a large but finite value."""

    q: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    k_new: torch.Tensor
    v_new: torch.Tensor
    batch: AttentionBatch


def make_case(
    query_lens: list[int],
    context_lens: list[int],
    *,
    num_q_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
    poison: float = 1e4,
) -> PagedCase:
    """Sequences whose blocks are scattered, in a cache of three layers (the middle one is used)."""
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    max_blocks = max(-(-length // block_size) for length in context_lens) + 1
    num_blocks = 1 + sum(-(-length // block_size) for length in context_lens)
    cache = torch.full(
        (num_blocks, 3, 2, num_kv_heads, block_size, head_dim), poison, dtype=dtype, device=device
    )
    order = (torch.randperm(num_blocks - 1, generator=generator) + 1).tolist()
    table = torch.randint(0, num_blocks, (len(context_lens), max_blocks), generator=generator)
    total = sum(query_lens)
    k_new = torch.empty(total, num_kv_heads, head_dim, dtype=dtype, device=device)
    v_new = torch.empty_like(k_new)
    start = 0
    for seq, (query_len, context_len) in enumerate(zip(query_lens, context_lens, strict=True)):
        keys, values = (
            noise(context_len, num_kv_heads, head_dim),
            noise(context_len, num_kv_heads, head_dim),
        )
        for position in range(0, context_len, block_size):
            block = order.pop()
            table[seq, position // block_size] = block
            rows = slice(position, min(position + block_size, context_len))
            count = rows.stop - rows.start
            cache[block, 1, 0, :, :count] = keys[rows].transpose(0, 1)
            cache[block, 1, 1, :, :count] = values[rows].transpose(0, 1)
        k_new[start : start + query_len] = keys[context_len - query_len :]
        v_new[start : start + query_len] = values[context_len - query_len :]
        start += query_len
    starts = torch.tensor([0, *query_lens]).cumsum(0).int().to(device)
    num_decodes = next((i for i, n in enumerate(query_lens) if n != 1), len(query_lens))
    batch = AttentionBatch(
        cu_seqlens_q=starts,
        context_lens=torch.tensor(context_lens, dtype=torch.int32, device=device),
        block_table=table.int().to(device),
        num_decodes=num_decodes,
        max_context_len=max(context_lens),
    )
    q = noise(total, num_q_heads, head_dim)
    return PagedCase(q, cache[:, 1, 0], cache[:, 1, 1], k_new, v_new, batch)
