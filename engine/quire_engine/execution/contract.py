"""Checks batches against the executor's contract: an oracle for schedulers under test.

It keeps what an executor would hold, tokens in place of KV: every row's tokens and block table,
and for every block which tokens were written after which prefix. From that it knows whether a
prefix hit really holds the prefix, whether a block is written by its only holder, and whether
each chunk starts where the one before it ended.
"""

from collections import Counter
from dataclasses import dataclass, field

from quire_engine.execution.base import AppendedBlocks, Batch, RevisedRow, StartedRow

NULL_BLOCK_ID = 0
_EMPTY_PREFIX = 0


@dataclass(slots=True)
class _Row:
    token_ids: list[int]
    block_ids: list[int]
    num_computed: int | None = None
    """None until its first chunk, which says how much of the prefix was found."""
    prefix: int = _EMPTY_PREFIX
    """Names all full blocks before the one that is being written."""


@dataclass(slots=True)
class _Content:
    """What a block holds: tokens from its first slot on, and what came before them."""

    prefix: int = _EMPTY_PREFIX
    token_ids: list[int] = field(default_factory=list)

    def name(self) -> int:
        """A name for everything up to this block's end."""
        return hash((self.prefix, *self.token_ids))


class BatchChecker:
    """Follows every batch of one executor; each violation is a RuntimeError("bug: ...").

    Parameters
    ----------
    num_rows
        Rows are 0 to num_rows - 1.
    num_blocks
        Blocks are 1 to num_blocks; 0 is the null block, which belongs in no table.
    block_size
        Tokens per block.
    """

    def __init__(self, *, num_rows: int, num_blocks: int, block_size: int) -> None:
        self._num_rows = num_rows
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._rows: dict[int, _Row] = {}
        self._contents: dict[int, _Content] = {}
        self._num_holders: Counter[int] = Counter()

    def check(self, batch: Batch) -> None:
        """Check a batch before it is computed, and take in its changes."""
        for row in batch.ended:
            self._end(row)
        for started in batch.started:
            self._start(started)
        for appended in batch.appended:
            self._append(appended, {destination for _, destination in batch.copies})
        for revised in batch.revised:
            self._revise(revised)
        for source, destination in batch.copies:
            self._copy(source, destination)
        self._check_chunks(batch)

    def take_sampled(self, batch: Batch, token_ids: list[int]) -> None:
        """Add the tokens that the batch sampled to their rows."""
        chunks = batch.chunks
        sampling = [r for r, samples in zip(chunks.rows, chunks.samples, strict=True) if samples]
        for row, token_id in zip(sampling, token_ids, strict=True):
            self._rows[row].token_ids.append(token_id)

    def _end(self, row: int) -> None:
        ended = self._rows.pop(row, None)
        if ended is None:
            raise RuntimeError(f"bug: row {row} ends but was not started")
        self._num_holders.subtract(ended.block_ids)

    def _start(self, started: StartedRow) -> None:
        row = started.row
        if row in self._rows or not 0 <= row < self._num_rows:
            raise RuntimeError(f"bug: row {row} is started while in use, or does not exist")
        if not 0 < started.num_prompt_tokens <= len(started.token_ids):
            raise RuntimeError(f"bug: row {row} has no prompt, or more prompt than tokens")
        self._rows[row] = _Row(list(started.token_ids), list(started.block_ids))
        self._hold(row, started.block_ids)

    def _append(self, appended: AppendedBlocks, copied: set[int]) -> None:
        row = self._find(appended.row)
        end = appended.index + len(appended.block_ids)
        replaced = row.block_ids[appended.index : end]
        replacing = appended.block_ids[: len(replaced)]
        if appended.index > len(row.block_ids) or not copied.issuperset(replacing):
            raise RuntimeError(
                f"bug: row {appended.row} has {len(row.block_ids)} blocks, and blocks are added "
                f"at {appended.index} without being copies of those there"
            )
        self._num_holders.subtract(replaced)
        row.block_ids[appended.index : end] = appended.block_ids
        self._hold(appended.row, appended.block_ids)

    def _revise(self, revised: RevisedRow) -> None:
        """Change a row's newest tokens and blocks; its next chunk shows whether they belong."""
        row = self._find(revised.row)
        computed = row.num_computed or 0
        if not 0 <= revised.first_token <= len(row.token_ids) or computed < len(row.token_ids) - 1:
            raise RuntimeError(f"bug: row {revised.row} is revised before its tokens are computed")
        if revised.first_block + len(revised.block_ids) < len(row.block_ids):
            raise RuntimeError(f"bug: row {revised.row} is left with fewer blocks")
        row.token_ids[revised.first_token :] = revised.token_ids
        self._num_holders.subtract(row.block_ids[revised.first_block :])
        row.block_ids[revised.first_block :] = revised.block_ids
        self._hold(revised.row, revised.block_ids)
        row.num_computed, row.prefix = None, _EMPTY_PREFIX

    def _hold(self, row: int, block_ids: list[int]) -> None:
        for block_id in block_ids:
            if not NULL_BLOCK_ID < block_id <= self._num_blocks:
                raise RuntimeError(f"bug: block {block_id} in the table of row {row}")
        if len(set(block_ids)) != len(block_ids):
            raise RuntimeError(f"bug: a block is twice in the table of row {row}")
        self._num_holders.update(block_ids)

    def _copy(self, source: int, destination: int) -> None:
        content = self._contents.get(source, _Content())
        self._contents[destination] = _Content(content.prefix, list(content.token_ids))

    def _check_chunks(self, batch: Batch) -> None:
        chunks = batch.chunks
        if sum(chunks.num_tokens) != batch.total_tokens:
            raise RuntimeError(f"bug: total_tokens is {batch.total_tokens}, not the chunks' sum")
        if len(set(chunks.rows)) != len(chunks.rows):
            raise RuntimeError("bug: a row is in a batch twice")
        decodes = slice(chunks.num_decodes)
        if any(count != 1 for count in chunks.num_tokens[decodes]) or not all(
            chunks.samples[decodes]
        ):
            raise RuntimeError("bug: a decode has other than one token, or does not sample")
        for row, start, count, samples in zip(
            chunks.rows, chunks.starts, chunks.num_tokens, chunks.samples, strict=True
        ):
            self._check_chunk(row, start, count, samples)

    def _check_chunk(self, row_id: int, start: int, count: int, samples: bool) -> None:
        row = self._find(row_id)
        end = start + count
        if count < 1 or end > len(row.token_ids) or samples != (end == len(row.token_ids)):
            raise RuntimeError(
                f"bug: row {row_id} of {len(row.token_ids)} tokens computes {start} to {end}, "
                f"samples: {samples}"
            )
        if end > len(row.block_ids) * self._block_size:
            raise RuntimeError(f"bug: row {row_id} has no block for position {end - 1}")
        if row.num_computed is None:
            self._check_prefix(row_id, row, start)
        elif row.num_computed != start:
            raise RuntimeError(f"bug: row {row_id} goes on at {start}, not {row.num_computed}")
        self._write(row_id, row, start, end)
        row.num_computed = end

    def _check_prefix(self, row_id: int, row: _Row, num_tokens: int) -> None:
        """Check that the table's first blocks hold the row's first `num_tokens`."""
        size = self._block_size
        for first in range(0, num_tokens, size):
            content = self._contents.get(row.block_ids[first // size], _Content())
            expected = row.token_ids[first : min(first + size, num_tokens)]
            if content.prefix != row.prefix or content.token_ids[: len(expected)] != expected:
                raise RuntimeError(
                    f"bug: row {row_id} starts at {num_tokens}, but block "
                    f"{row.block_ids[first // size]} does not hold its tokens from {first} on"
                )
            if len(expected) == size:
                row.prefix = content.name()

    def _write(self, row_id: int, row: _Row, start: int, end: int) -> None:
        size = self._block_size
        position = start
        while position < end:
            index, slot = divmod(position, size)
            block_id = row.block_ids[index]
            if self._num_holders[block_id] != 1:
                raise RuntimeError(f"bug: row {row_id} writes block {block_id}, which others hold")
            if slot == 0:
                content = self._contents[block_id] = _Content(row.prefix)
            else:
                content = self._contents[block_id]
                del content.token_ids[slot:]
            stop = min(end, (index + 1) * size)
            content.token_ids += row.token_ids[position:stop]
            if stop == (index + 1) * size:
                row.prefix = content.name()
            position = stop

    def _find(self, row: int) -> _Row:
        found = self._rows.get(row)
        if found is None:
            raise RuntimeError(f"bug: row {row} was not started")
        return found
