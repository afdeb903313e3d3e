"""The paged-attention cases of the anchors table: Hq 32, Hkv 8, D 128, block 16, bf16."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quire_kernels.ops.attention import AttentionBatch, AttentionOptions

NUM_Q_HEADS = 32
NUM_KV_HEADS = 8
HEAD_DIM = 128
BLOCK_SIZE = 16
OPTIONS = AttentionOptions(HEAD_DIM**-0.5)


@dataclass(frozen=True)
class Case:
    """`num_seqs` sequences of `query_len` new tokens on `context_len` tokens, the new included."""

    key: str
    num_seqs: int
    query_len: int
    context_len: int
    goal: float
    """TB/s for decode, TFLOP/s for prefill."""

    @property
    def is_decode(self) -> bool:
        """Whether bytes rather than operations are counted."""
        return self.query_len == 1

    @property
    def num_bytes(self) -> int:
        """K and V of every context token once, q and the output."""
        kv = 2 * self.num_seqs * self.context_len * NUM_KV_HEADS * HEAD_DIM
        return 2 * (kv + 2 * self.num_seqs * self.query_len * NUM_Q_HEADS * HEAD_DIM)

    @property
    def num_flops(self) -> int:
        """4 x Hq x D x (query, key) pairs under the causal mask."""
        before = self.context_len - self.query_len
        pairs = self.query_len * before + self.query_len * (self.query_len + 1) // 2
        return 4 * NUM_Q_HEADS * HEAD_DIM * pairs * self.num_seqs


# "chunk 4 x 512 on ctx 8192": 512 new tokens at the end of 8,192.
CASES = (
    Case("attention/decode-b1-ctx4096", 1, 1, 4096, 0.79),
    Case("attention/decode-b8-ctx4096", 8, 1, 4096, 2.0),
    Case("attention/decode-b32-ctx4096", 32, 1, 4096, 2.7),
    Case("attention/decode-b128-ctx2048", 128, 1, 2048, 2.85),
    Case("attention/decode-b256-ctx1024", 256, 1, 1024, 2.85),
    Case("attention/decode-b16-ctx32768", 16, 1, 32768, 2.95),
    Case("attention/prefill-1x4096", 1, 4096, 4096, 400.0),
    Case("attention/prefill-4x2048", 4, 2048, 2048, 380.0),
    Case("attention/prefill-1x16384", 1, 16384, 16384, 470.0),
    Case("attention/chunk-4x512-ctx8192", 4, 512, 8192, 420.0),
)


@dataclass(frozen=True, eq=False)
class Inputs:
    """One rotation of a case's tensors."""

    q: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    k_new: torch.Tensor
    v_new: torch.Tensor
    out: torch.Tensor
    batch: AttentionBatch


def make_inputs(case: Case, rotations: int, device: str = "cuda") -> list[Inputs]:
    """Random inputs whose blocks are scattered over one cache of a single layer."""
    blocks_per_seq = -(-case.context_len // BLOCK_SIZE)
    per_set = case.num_seqs * blocks_per_seq
    total = 1 + rotations * per_set
    cache = torch.empty(
        total, 1, 2, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM, dtype=torch.bfloat16, device=device
    )
    cache.normal_()
    order = torch.randperm(total - 1, device=device).int() + 1
    return [
        _one_set(case, cache, order[turn * per_set : (turn + 1) * per_set].view(case.num_seqs, -1))
        for turn in range(rotations)
    ]


def _one_set(case: Case, cache: torch.Tensor, table: torch.Tensor) -> Inputs:
    device, num_tokens = cache.device, case.num_seqs * case.query_len
    starts = torch.arange(case.num_seqs + 1, dtype=torch.int32, device=device) * case.query_len
    batch = AttentionBatch(
        cu_seqlens_q=starts,
        context_lens=torch.full((case.num_seqs,), case.context_len, device=device).int(),
        block_table=table.contiguous(),
        num_decodes=case.num_seqs if case.is_decode else 0,
        max_context_len=case.context_len,
    )
    q = torch.randn(num_tokens, NUM_Q_HEADS, HEAD_DIM, device=device).to(cache.dtype)
    fresh = []
    for which in (0, 1):
        pages = cache[:, 0, which][table.long()].transpose(2, 3).flatten(1, 2)
        rows = pages[:, case.context_len - case.query_len : case.context_len]
        fresh.append(rows.reshape(num_tokens, NUM_KV_HEADS, HEAD_DIM).contiguous())
    return Inputs(q, cache[:, 0, 0], cache[:, 0, 1], fresh[0], fresh[1], torch.empty_like(q), batch)
