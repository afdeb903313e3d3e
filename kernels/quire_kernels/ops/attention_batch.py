"""What a step's attention calls share: the batch (per step) and the options (per layer kind)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quire_kernels.errors import ArgumentError
from quire_kernels.ops.checks import check_device, check_integers, check_shape


@dataclass(frozen=True, eq=False)
class AttentionBatch:
    """The sequences of one step. Checked once, used by every layer.

    Sequences with a single new token come first (`num_decodes` of them): they take the split-KV
    decode path, the rest the prefill path, in two launches. Lengths stay on the device; the host
    only gives upper bounds, so a captured graph serves any lengths below them.
    """

    cu_seqlens_q: torch.Tensor
    """[num_seqs + 1] int32, device: where each sequence's new tokens start; the last is the end."""

    context_lens: torch.Tensor
    """[num_seqs] int32, device: key tokens per sequence, the new ones included; at least 1."""

    block_table: torch.Tensor
    """[num_seqs or more, max_blocks] int32, device: blocks in order; block 0 is the null block."""

    num_decodes: int
    """Leading sequences with exactly one new token."""

    max_context_len: int
    """Upper bound of `context_lens`; chooses the number of splits."""

    max_prefill_tokens: int | None = None
    """Upper bound of the new tokens after the decodes; None: all that follow `num_decodes`. With a
    bound, decodes may be padded: an entry of `num_decodes` that has no token has a context of one,
    and `cu_seqlens_q` goes on from the last real one; what it writes, the prompts overwrite."""

    def __post_init__(self) -> None:
        check_integers("cu_seqlens_q", self.cu_seqlens_q)
        check_integers("context_lens", self.context_lens)
        check_integers("block_table", self.block_table)
        check_shape("cu_seqlens_q", self.cu_seqlens_q, (self.num_seqs + 1,))
        check_shape("block_table", self.block_table, (None, None))
        check_device("context_lens", self.context_lens, self.block_table)
        check_device("cu_seqlens_q", self.cu_seqlens_q, self.block_table)
        if self.block_table.shape[0] < self.num_seqs:
            raise ArgumentError(
                f"block_table: {self.block_table.shape[0]} rows for {self.num_seqs} sequences"
            )
        if not 0 <= self.num_decodes <= self.num_seqs:
            raise ArgumentError(f"num_decodes {self.num_decodes} of {self.num_seqs} sequences")
        if self.max_context_len < 1:
            raise ArgumentError(f"max_context_len {self.max_context_len}, expected at least 1")

    @property
    def num_seqs(self) -> int:
        """Sequences of the step, padding included."""
        return self.context_lens.shape[0]

    @property
    def num_prefills(self) -> int:
        """Sequences after the decodes."""
        return self.num_seqs - self.num_decodes

    def num_prefill_tiles(self, num_tokens: int, tile: int) -> int:
        """Upper bound of the tiles of so many tokens that prompts take, of `num_tokens` in all."""
        bound = self.max_prefill_tokens
        return (num_tokens - self.num_decodes if bound is None else bound) // tile + (
            self.num_prefills
        )


@dataclass(frozen=True)
class AttentionOptions:
    """How logits are scaled and masked: one value per kind of layer."""

    scale: float
    """Factor on query-key products, usually head_dim ** -0.5."""

    causal: bool = True
    """Whether a token sees only itself and tokens before it."""

    window: int | None = None
    """Sliding window in tokens, the token itself included; None sees the whole context."""

    soft_cap: float | None = None
    """Logits become `soft_cap * tanh(logits / soft_cap)`; None leaves them."""

    fixed: bool = False
    """A token's result has the same bits in every batch, computed as a decode or in any chunk: one
    kernel in one order of keys, whatever is faster."""

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ArgumentError(f"window {self.window}, expected at least 1 or None")
        if self.window is not None and not self.causal:
            raise ArgumentError("a sliding window needs causal attention")
        if self.soft_cap is not None and self.soft_cap <= 0:
            raise ArgumentError(f"soft_cap {self.soft_cap}, expected more than 0 or None")
