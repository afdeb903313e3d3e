"""Runs single steps on an executor that serves nobody yet, and measures them.

Its blocks come from a pool of its own over the executor's blocks, and its rows are the executor's:
both are given back after each trial, whatever happens, so that the engine that begins after it
finds nothing. What decodes read is a copy of one block that a prompt wrote: memory that nobody has
written yet reads faster than any other.

Where the engine is to overlap its steps (`core.in_flight`), those measured here do: the next one is
given to the executor before the last one is waited for, and seconds are counted as the core counts
them. So what the host does beside the device is in no step's time, here as there.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire_engine.calibration.trials import MAX_STEPS_PER_VISIT, Trial
from quire_engine.execution.base import AheadExecutor, Batch, Chunks, Executor, StartedRow
from quire_engine.kvcache.block import Block
from quire_engine.kvcache.pool import BlockPool
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams

_SAMPLING = SamplingParams(temperature=1.0, max_tokens=1)
"""As most requests have it: what is greedy takes no longer."""
_COPIES_PER_STEP = 512
_TOKEN_STRIDE = 7919
"""A prime: the tokens differ, as those of texts do."""


_Flight = tuple[Batch, float]
"""A step that is not waited for yet, and when it was begun."""
RunStep = Callable[[bool], float]
"""Runs the next step of a trial, told whether another is to follow; returns its seconds."""


class RowsLeftError(Exception):
    """An executor cannot even end rows: nobody must use it after this."""


class StepRig:
    """Measures steps; the executor is loaded, its cache allocated, and nobody else uses it.

    Parameters
    ----------
    clock
        Seconds that never go back.
    overlaps
        Whether steps overlap, where the executor can have two of them.
    """

    def __init__(
        self,
        executor: Executor,
        facts: ModelFacts,
        clock: Callable[[], float],
        *,
        overlaps: bool = True,
    ) -> None:
        self._executor = executor
        self._ahead = executor if overlaps and isinstance(executor, AheadExecutor) else None
        self._facts = facts
        self._clock = clock
        self._pool = BlockPool(facts.num_blocks)
        self._held: dict[int, list[Block]] = {}
        self._known: set[int] = set()
        """Rows that the executor has: a batch that failed has changed nothing."""
        self._source: int | None = None
        """The block that a prompt wrote."""
        self._written: set[int] = set()
        self._unwritten: list[int] = []
        """Blocks to write before the next step."""
        self._tokens = [
            i * _TOKEN_STRIDE % facts.vocab_size for i in range(facts.max_model_len + 1)
        ]

    @contextmanager
    def visit(self, trial: Trial) -> Iterator[RunStep]:
        """Prepare a trial; what is given runs one step of it and returns its seconds.

        At most `MAX_STEPS_PER_VISIT` times. All is given back at the block's end, where a step that
        was begun for nothing is waited for.
        """
        batches = self._batches(trial)
        flights: deque[_Flight] = deque()
        ended_at = -math.inf

        def begin() -> None:
            batch = next(batches)
            begun_at = self._clock()
            self._submit(batch)
            flights.append((batch, begun_at))

        def step(has_next: bool) -> float:
            nonlocal ended_at
            if not flights:
                begin()
            if has_next and self._ahead is not None:
                begin()
            _, begun_at = flights[0]
            seconds = self._collect(flights)
            now = self._clock()
            if seconds is None:
                seconds = now - max(begun_at, ended_at)
            ended_at = now
            return seconds

        try:
            yield step
        finally:
            self._give_back(flights)

    def check_returned(self) -> None:
        """Raise RuntimeError if a block is not back."""
        self._pool.check_invariants(self._held.values())
        if self._held or self._pool.num_free != self._pool.num_total:
            raise RuntimeError("bug: calibration kept blocks")

    def _batches(self, trial: Trial) -> Iterator[Batch]:
        """What to run, step by step: decodes grow by a token, prompts come again on their blocks.

        Blocks are written before the first one, while nothing is in flight.
        """
        decodes = [self._start(row, context) for row, context in enumerate(trial.contexts)]
        prompts = [
            self._start(row, start + count, room=0)
            for row, (start, count) in enumerate(trial.prompts, trial.num_decodes)
        ]
        self._write_blocks()
        for step in range(MAX_STEPS_PER_VISIT):
            yield Batch(
                started=prompts if step else decodes + prompts,
                ended=[each.row for each in prompts] if step else [],
                chunks=_chunks(trial, step),
                total_tokens=trial.num_decodes + trial.prefill_tokens,
            )
        raise RuntimeError(f"bug: more than {MAX_STEPS_PER_VISIT} steps of a trial")

    def _start(self, row: int, num_tokens: int, *, room: int = MAX_STEPS_PER_VISIT) -> StartedRow:
        count = -(-(num_tokens + room) // self._facts.block_size)
        blocks = self._held[row] = self._pool.take(count)
        block_ids = [block.block_id for block in blocks]
        self._unwritten += [each for each in block_ids if each not in self._written]
        return StartedRow(
            row=row,
            token_ids=self._tokens[:num_tokens],
            block_ids=block_ids,
            sampling=_SAMPLING,
            num_prompt_tokens=num_tokens,
            seed=row,
        )

    def _write_blocks(self) -> None:
        """Fill the blocks that the next step may read."""
        if self._source is None:
            self._source = self._write_source()
        for first in range(0, len(self._unwritten), _COPIES_PER_STEP):
            some = self._unwritten[first : first + _COPIES_PER_STEP]
            self._executor.run(Batch(copies=[(self._source, each) for each in some]))
            self._written.update(some)
        self._unwritten.clear()

    def _write_source(self) -> int:
        """Run a prompt of one block: no row of the trial has begun yet."""
        block_id = self._unwritten.pop(0)
        size = min(self._facts.block_size, self._facts.max_model_len - 1)
        started = StartedRow(
            row=0,
            token_ids=self._tokens[:size],
            block_ids=[block_id],
            sampling=_SAMPLING,
            num_prompt_tokens=size,
            seed=0,
        )
        chunks = Chunks(rows=[0], starts=[0], num_tokens=[size], samples=[True])
        self._run(Batch(started=[started], chunks=chunks, total_tokens=size))
        self._run(Batch(ended=[0]))
        self._written.add(block_id)
        return block_id

    def _run(self, batch: Batch) -> None:
        self._executor.run(batch)
        self._note(batch)

    def _submit(self, batch: Batch) -> None:
        if self._ahead is None:
            self._executor.run(batch)
        else:
            self._ahead.submit(batch)

    def _collect(self, flights: deque[_Flight]) -> float | None:
        """Wait for the oldest step; returns its seconds, if the executor tells them.

        Raises
        ------
        RowsLeftError
            It failed, and with it the one behind it.
        """
        batch, _ = flights.popleft()
        seconds = None
        if self._ahead is not None:
            try:
                seconds = self._ahead.collect().seconds
            except Exception as error:
                if flights:
                    flights.clear()
                    raise RowsLeftError from error
                raise
        self._note(batch)
        return seconds

    def _note(self, batch: Batch) -> None:
        self._known.difference_update(batch.ended)
        self._known.update(row.row for row in batch.started)

    def _give_back(self, flights: deque[_Flight]) -> None:
        """Wait for what is in flight, end the rows that the executor has, release all blocks."""
        try:
            while flights:
                self._collect(flights)
            if self._known:
                self._run(Batch(ended=sorted(self._known)))
        except RowsLeftError:
            raise
        except Exception as error:
            raise RowsLeftError from error
        finally:
            self._release(list(self._held))

    def _release(self, rows: list[int]) -> None:
        for row in rows:
            self._pool.release(reversed(self._held.pop(row)))


def _chunks(trial: Trial, step: int) -> Chunks:
    """Decodes that go on by a token in each step, then the same prompts again."""
    decodes = trial.num_decodes
    return Chunks(
        rows=list(range(trial.num_rows)),
        starts=[context - 1 + step for context in trial.contexts]
        + [start for start, _ in trial.prompts],
        num_tokens=[1] * decodes + [count for _, count in trial.prompts],
        samples=[True] * trial.num_rows,
        num_decodes=decodes,
    )
