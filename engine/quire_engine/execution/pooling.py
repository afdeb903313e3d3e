"""Rows that want an embedding of their prompt, and no token.

Their chunks are computed apart from the others of a step: every token's final hidden state is
looked at, and no logit. What a step found is handed out as it is; whoever scheduled it adds it up,
so that a step which fails may run again.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from quire_engine.execution.base import Chunks, PooledStates, StartedRow, StepResult
from quire_engine.protocol.sampling import Pooling

ComputeChunks = Callable[[Chunks], StepResult]
ComputeStates = Callable[[Chunks], torch.Tensor]
"""Computes chunks; returns [sum of num_tokens, hidden], float32, after the final norm."""


class PooledRows:
    """Which rows of an executor want an embedding, and how."""

    def __init__(self) -> None:
        self._pooling: dict[int, Pooling] = {}

    def start(self, started: StartedRow) -> None:
        """Take a row's wish; forgets what the row was before."""
        self._pooling.pop(started.row, None)
        if started.sampling.pooling is not None:
            self._pooling[started.row] = started.sampling.pooling

    def find(self, chunks: Chunks) -> list[int]:
        """Return the chunks, by index, of such rows."""
        if not self._pooling:
            return []
        return [index for index, row in enumerate(chunks.rows) if row in self._pooling]

    def compute(
        self,
        chunks: Chunks,
        pooled: Sequence[int],
        *,
        compute_chunks: ComputeChunks,
        compute_states: ComputeStates,
    ) -> StepResult:
        """Compute a step of which some chunks are of such rows.

        Parameters
        ----------
        pooled
            Those chunks, by index.

        Returns
        -------
        The result, with a 0 in place of the tokens that these rows do not choose.
        """
        others = [index for index in range(len(chunks)) if index not in pooled]
        result = compute_chunks(chunks.select(others)) if others else StepResult([])
        own = chunks.select(pooled)
        states = torch.split(compute_states(own), own.num_tokens)
        found = {
            row: self.pool(row, part, ends_prompt=ends)
            for row, part, ends in zip(own.rows, states, own.samples, strict=True)
        }
        result.pooled = {row: part for row, part in found.items() if part is not None}
        _leave_places(result, chunks, set(pooled))
        return result

    def pool(self, row: int, states: torch.Tensor, *, ends_prompt: bool) -> PooledStates | None:
        """Return what a chunk of such a row brings; None if its embedding is of another chunk.

        Parameters
        ----------
        states
            [num_tokens, hidden]: of the chunk, after the final norm, any floating type and device.
        ends_prompt
            Whether the prompt's last token is among them.
        """
        if self._pooling[row] == "mean":
            return states.double().sum(0).cpu().numpy()
        return states[-1].double().cpu().numpy() if ends_prompt else None


def _leave_places(result: StepResult, chunks: Chunks, pooled: set[int]) -> None:
    """Give the pooled chunks that end a prompt their places among the sampled tokens."""
    sampling = [index for index, samples in enumerate(chunks.samples) if samples]
    places = [place for place, index in enumerate(sampling) if index not in pooled]
    token_ids = [0] * len(sampling)
    for place, token_id in zip(places, result.token_ids, strict=True):
        token_ids[place] = token_id
    if result.logprobs is not None:
        scores = dict(zip(places, result.logprobs, strict=True))
        result.logprobs = [scores.get(place) for place in range(len(sampling))]
    bad = [
        place
        for place, index in enumerate(sampling)
        if index in pooled and not np.isfinite((result.pooled or {})[chunks.rows[index]]).all()
    ]
    result.not_finite = (*(places[index] for index in result.not_finite), *bad)
    result.token_ids = token_ids
