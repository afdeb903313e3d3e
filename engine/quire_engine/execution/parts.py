"""Parts of a batch: the same work in smaller steps, each with the changes of its own rows.

A step that fails is computed again in parts until it is known which row makes it fail. What rows a
part has, and nothing else, decides what it changes; the parts in order change what the whole would.
"""

from quire_engine.execution.base import Batch, Chunks


def take_part(batch: Batch, first: int, last: int, *, ended: list[int]) -> Batch:
    """Return chunks `first` to `last` (not included) as a batch.

    Parameters
    ----------
    ended
        Rows that are to end with this part: those of the batch, unless an earlier part ended them.
    """
    whole = batch.chunks
    chunks = Chunks(
        rows=whole.rows[first:last],
        starts=whole.starts[first:last],
        num_tokens=whole.num_tokens[first:last],
        samples=whole.samples[first:last],
        num_decodes=min(max(whole.num_decodes - first, 0), last - first),
    )
    rows = set(chunks.rows)
    started = [change for change in batch.started if change.row in rows]
    appended = [change for change in batch.appended if change.row in rows]
    own_blocks = {block for change in started for block in change.block_ids}
    own_blocks |= {block for change in appended for block in change.block_ids}
    revised = [change for change in batch.revised if change.row in rows]
    own_blocks |= {block for change in revised for block in change.block_ids}
    return Batch(
        started=started,
        appended=appended,
        revised=revised,
        copies=[copy for copy in batch.copies if copy[1] in own_blocks],
        ended=ended,
        chunks=chunks,
        total_tokens=sum(chunks.num_tokens),
        num_steps=batch.num_steps,
    )
