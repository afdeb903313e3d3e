"""Where a step's keys and values lie in the paged KV cache, worked out once for all layers.

KV memory is [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]. Seen as rows of
head_dim values, a token's key is row

    (((block * num_layers + layer) * 2 + 0) * num_kv_heads + head) * block_size + slot

and its value lies a constant distance behind, as do the next layer's: one table of row numbers per
step serves every layer of one window. A step's tokens are decodes first, then prompt chunks:

    tokens    d0 d1 d2 | c0 c0 c0 c0 | c1 c1 c1
    decodes   rows of like length are gathered, padded and computed together
    chunks    one by one, each over its own row's keys
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

MOST_GROUP_TOKENS = 16384
"""Most keys that are gathered at once for decodes, padding included: bounds the copy's memory."""


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Shape of the KV memory."""

    num_layers: int
    num_kv_heads: int
    block_size: int
    head_dim: int

    def shape(self, num_blocks: int) -> tuple[int, ...]:
        """Return the shape of the memory of so many blocks."""
        return (
            num_blocks,
            self.num_layers,
            2,
            self.num_kv_heads,
            self.block_size,
            self.head_dim,
        )

    @property
    def rows_per_side(self) -> int:
        """Rows of head_dim values of one layer's keys (or values) in one block."""
        return self.num_kv_heads * self.block_size

    def token_rows(self, block_ids: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Number the rows of tokens' keys in layer 0.

        Parameters
        ----------
        block_ids, slots
            [...], int64: where each token lies.

        Returns
        -------
        torch.Tensor
            [..., num_kv_heads], int64.
        """
        first = block_ids * (self.num_layers * 2 * self.rows_per_side) + slots
        return first.unsqueeze(-1) + torch.arange(self.num_kv_heads) * self.block_size


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Queries that are computed by one call."""

    tokens: torch.Tensor | slice
    """Which of the step's tokens: [num_rows] of decodes, or the slice of one chunk."""
    key_rows: torch.Tensor
    """[num_rows, num_kv_heads, num_keys], int64, flattened; a chunk has one row."""
    num_keys: int
    mask: torch.Tensor | None
    """Added to the scores, float32: [num_rows, 1, 1, num_keys], or [chunk, num_keys]."""
    is_chunk: bool


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What one step reads and writes, the same for all layers of one window."""

    write_rows: torch.Tensor
    """[num_tokens * num_kv_heads], int64."""
    groups: Sequence[QueryGroup]


def plan_attention(
    layout: CacheLayout,
    tables: torch.Tensor,
    starts: Sequence[int],
    num_tokens: Sequence[int],
    num_decodes: int,
    window: int = 0,
) -> AttentionPlan:
    """Work out where a step's keys and values lie.

    Parameters
    ----------
    tables
        [num_chunks, max_blocks], int64: the block table of each chunk's row.
    starts, num_tokens
        First position and number of tokens of each chunk; decodes come first.
    num_decodes
        How many of the chunks are decodes.
    window
        Each query sees so many of the newest keys, its own included; 0: all.
    """
    window = window or sys.maxsize
    size = layout.block_size
    owners = torch.repeat_interleave(torch.arange(len(starts)), torch.tensor(num_tokens))
    positions = token_positions(starts, num_tokens)
    write_rows = layout.token_rows(tables[owners, positions // size], positions % size)
    groups = [
        _plan_decodes(layout, tables, starts, members, window)
        for members in group_decodes(starts[:num_decodes])
    ]
    first = num_decodes
    for index in range(num_decodes, len(starts)):
        count = num_tokens[index]
        tokens = slice(first, first + count)
        groups.append(_plan_chunk(layout, tables[index], starts[index], tokens, window))
        first += count
    return AttentionPlan(write_rows.flatten(), groups)


def token_positions(starts: Sequence[int], num_tokens: Sequence[int]) -> torch.Tensor:
    """Return the position of each token of the chunks: [sum of num_tokens], int64."""
    ranges = zip(starts, num_tokens, strict=True)
    return torch.cat([torch.arange(start, start + count) for start, count in ranges])


def group_decodes(starts: Sequence[int]) -> list[list[int]]:
    """Put decodes of like length together, so that little of a padded group is padding.

    Parameters
    ----------
    starts
        Position of each decode's token, one less than the number of its keys.

    Returns
    -------
    list[list[int]]
        Indices of decodes, the longest first; none is shorter than half of its group's longest.
    """
    groups: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(starts)), key=lambda i: -starts[i]):
        length = starts[index] + 1
        is_full = not groups or (len(groups[-1]) + 1) * longest > MOST_GROUP_TOKENS
        if is_full or length * 2 < longest:
            groups.append([])
            longest = length
        groups[-1].append(index)
    return groups


def _key_rows(
    layout: CacheLayout, tables: torch.Tensor, firsts: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """Return the rows of each table's keys: [num_rows * num_kv_heads * greatest of counts].

    Those with fewer are padded with their own last key: padding has weight 0, but what others left
    in a block may be NaN, and 0 * NaN is NaN.

    Parameters
    ----------
    firsts, counts
        [num_rows], int64: position of each row's first key, and how many there are.
    """
    numbers = torch.arange(int(counts.max())).minimum(counts[:, None] - 1)
    positions = firsts[:, None] + numbers
    block_ids = tables.gather(1, positions // layout.block_size)
    rows = layout.token_rows(block_ids, positions % layout.block_size)
    return rows.transpose(1, 2).flatten()


def _plan_decodes(
    layout: CacheLayout,
    tables: torch.Tensor,
    starts: Sequence[int],
    members: list[int],
    window: int,
) -> QueryGroup:
    tokens = torch.tensor(members)
    lengths = torch.tensor([starts[index] + 1 for index in members])
    counts = lengths.clamp(max=window)
    num_keys = int(counts[0])
    mask = None
    if int(counts[-1]) != num_keys:
        is_hidden = torch.arange(num_keys) >= counts[:, None]
        mask = torch.zeros(is_hidden.shape).masked_fill_(is_hidden, -torch.inf)[:, None, None]
    rows = _key_rows(layout, tables[tokens], lengths - counts, counts)
    return QueryGroup(tokens, rows, num_keys, mask, False)


def _plan_chunk(
    layout: CacheLayout, table: torch.Tensor, start: int, tokens: slice, window: int
) -> QueryGroup:
    count = tokens.stop - tokens.start
    first_key = max(start + 1 - window, 0)
    num_keys = start + count - first_key
    mask = None
    if count > 1:
        keys = torch.arange(first_key, start + count)
        age = torch.arange(start, start + count)[:, None] - keys
        is_hidden = (age < 0) | (age >= window)
        mask = torch.zeros(is_hidden.shape).masked_fill_(is_hidden, -torch.inf)
    rows = _key_rows(layout, table[None], torch.tensor([first_key]), torch.tensor([num_keys]))
    return QueryGroup(tokens, rows, num_keys, mask, True)
