"""Checks a batch's numbers before C++ follows them as addresses."""

from dataclasses import dataclass

from quire_engine.execution.base import Batch


@dataclass(frozen=True, slots=True)
class Limits:
    """What ids, rows, blocks and positions must stay below.

    Rows keep nothing that was not checked here, so that a step costs no more than its changes.
    """

    num_rows: int
    num_blocks: int
    """Of the cache, with the null block."""
    vocab_size: int
    max_model_len: int

    def check(self, batch: Batch) -> None:
        """Refuse a batch that would read or write beyond a buffer; nothing of it is taken in yet.

        Raises
        ------
        RuntimeError
            The scheduler, or whoever let a request in, has a bug.
        """
        most_blocks = self.num_blocks
        for started in batch.started:
            _check_range("row", [started.row], self.num_rows)
            _check_range("token id", started.token_ids, self.vocab_size)
            _check_range("block", started.block_ids, most_blocks)
            _check_range("length of a row", [len(started.token_ids)], self.max_model_len + 1)
        for appended in batch.appended:
            _check_range("row", [appended.row], self.num_rows)
            _check_range("block", appended.block_ids, most_blocks)
        for revised in batch.revised:
            _check_range("row", [revised.row], self.num_rows)
            _check_range("token id", revised.token_ids, self.vocab_size)
            _check_range("block", revised.block_ids, most_blocks)
            length = revised.first_token + len(revised.token_ids)
            _check_range("length of a row", [length], self.max_model_len + 1)
        for copy in batch.copies:
            _check_range("block", copy, most_blocks)
        self._check_chunks(batch)

    def _check_chunks(self, batch: Batch) -> None:
        chunks = batch.chunks
        if not len(chunks):
            return
        _check_range("row", chunks.rows, self.num_rows)
        ends = list(map(int.__add__, chunks.starts, chunks.num_tokens))
        if min(chunks.starts) < 0 or min(chunks.num_tokens) < 1:
            raise RuntimeError("bug: a chunk starts before position 0, or has no token")
        _check_range("end of a chunk", ends, self.max_model_len + 1)


def _check_range(what: str, numbers: list[int] | tuple[int, ...], limit: int) -> None:
    if numbers and not 0 <= min(numbers) <= max(numbers) < limit:
        raise RuntimeError(
            f"bug: {what} {min(numbers)} to {max(numbers)} is outside of [0, {limit})"
        )
