"""Steps in which prompts are scored: logits of every position, where the kernels give one a chunk.

A chunk that is to be scored is computed again as a chunk of one token for each of its positions,
some of them a call, so that there are never more logits than those of one piece.
"""

from collections.abc import Callable, Sequence

import torch

from quire_engine.execution.base import Chunks
from quire_engine.execution.special_rows import SpecialRows, scored_pieces
from quire_engine.protocol.sampling import TokenLogprobs

ComputeLogits = Callable[[Chunks], torch.Tensor]
"""Computes chunks; returns [number of chunks that sample, vocab], float32."""
PromptScores = dict[int, list[TokenLogprobs]]


def compute_scored(
    chunks: Chunks, scored: Sequence[int], special: SpecialRows, compute: ComputeLogits
) -> tuple[torch.Tensor, PromptScores]:
    """Compute a step of which some chunks are prompts to be scored.

    Parameters
    ----------
    scored
        Those chunks, by index.

    Returns
    -------
    The logits of all chunks that sample, in their order, and by row the scores.
    """
    logits: dict[int, torch.Tensor] = {}
    others = [index for index in range(len(chunks)) if index not in scored]
    if others:
        sampling = [index for index in others if chunks.samples[index]]
        logits.update(zip(sampling, compute(chunks.select(others)), strict=True))
    scores: PromptScores = {}
    for index in scored:
        row, start = chunks.rows[index], chunks.starts[index]
        scores[row] = []
        for first, count in scored_pieces(chunks.num_tokens[index]):
            piece = compute(_one_by_one(row, start + first, count))
            scores[row] += special.score_prompt(row, start + first, piece)
            logits[index] = piece[-1]
    sampled = [logits[index] for index, samples in enumerate(chunks.samples) if samples]
    return torch.stack(sampled) if sampled else torch.empty(0, 0), scores


def _one_by_one(row: int, start: int, count: int) -> Chunks:
    positions = list(range(start, start + count))
    return Chunks(
        rows=[row] * count, starts=positions, num_tokens=[1] * count, samples=[True] * count
    )
