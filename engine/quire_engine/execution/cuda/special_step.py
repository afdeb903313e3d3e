"""Steps with rows that ask for more than the captured kernels do: rules, scores, embeddings.

They run kernel by kernel, and wait for their tokens: the next token's rules look at them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from quire_engine.execution.base import Chunks, PooledStates
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.row_memory import RowMemory
from quire_engine.execution.cuda.step import StepProgram
from quire_engine.execution.pooling import PooledRows
from quire_engine.execution.special_rows import SpecialRows, scored_pieces
from quire_engine.protocol.sampling import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Scores:
    """What a step says of its tokens beside which they are; see `StepResult`."""

    logprobs: list[TokenLogprobs | None] | None = None
    prompt_logprobs: dict[int, list[TokenLogprobs]] | None = None
    impossible: tuple[int, ...] = ()
    pooled: dict[int, PooledStates] | None = None


def is_special(rows: RowMemory, chunks: Chunks) -> bool:
    """Whether a step has to go through `compute_special`."""
    special = rows.special
    return (
        special.concern(chunks.rows)
        or bool(special.scored_chunks(chunks))
        or bool(rows.pooled.find(chunks))
    )


def compute_special(
    program: StepProgram, rows: RowMemory, step: StepTensors, chunks: Chunks
) -> Scores:
    """Compute a step whose inputs are on their way; its tokens are in `program.sampled`.

    Parameters
    ----------
    step
        Made of `chunks`, all in their order.
    """
    special = rows.special
    scored, to_pool = special.scored_chunks(chunks), rows.pooled.find(chunks)
    needs_all = bool(scored or to_pool)
    hidden = program.forward(step, None if needs_all else step.sample_index)
    prompts = _score_prompts(program, special, chunks, scored, hidden) if scored else None
    pooled = _pool(rows.pooled, chunks, to_pool, hidden) if to_pool else None
    sampling = [index for index, samples in enumerate(chunks.samples) if samples]
    if not sampling:
        return Scores(None, prompts, pooled=pooled)
    if needs_all and step.sample_index is not None:
        hidden = hidden.index_select(0, step.sample_index)

    def pick(logits: torch.Tensor) -> list[int]:
        program.sample(step, logits)
        # a row without finite logits has -1, and its request ends with this step
        tokens: list[int] = program.sampled[: len(sampling)].clamp(min=0).tolist()
        return tokens

    row_ids = [chunks.rows[index] for index in sampling]
    positions = [chunks.starts[index] + chunks.num_tokens[index] for index in sampling]
    chosen = special.choose(program.logits(hidden), row_ids, positions, pick)
    found = pooled or {}
    bad = [i for i, row in enumerate(row_ids) if row in found and not np.isfinite(found[row]).all()]
    return Scores(chosen.logprobs, prompts, (*chosen.impossible, *bad), pooled)


def _pool(
    pooled: PooledRows, chunks: Chunks, indices: Sequence[int], hidden: torch.Tensor
) -> dict[int, PooledStates]:
    """Return what some chunks bring to their rows' embeddings.

    Parameters
    ----------
    hidden
        [num_tokens, hidden]: of all tokens of the step.
    """
    found: dict[int, PooledStates] = {}
    states = torch.split(hidden, chunks.num_tokens)
    for index in indices:
        row = chunks.rows[index]
        part = pooled.pool(row, states[index], ends_prompt=chunks.samples[index])
        if part is not None:
            found[row] = part
    return found


def _score_prompts(
    program: StepProgram,
    special: SpecialRows,
    chunks: Chunks,
    scored: Sequence[int],
    hidden: torch.Tensor,
) -> dict[int, list[TokenLogprobs]]:
    """Score the prompts of some chunks, a piece at a time.

    Parameters
    ----------
    hidden
        [num_tokens, hidden]: of all tokens of the step.
    """
    scores: dict[int, list[TokenLogprobs]] = {}
    for index in scored:
        row, offset = chunks.rows[index], sum(chunks.num_tokens[:index])
        scores[row] = []
        for first, count in scored_pieces(chunks.num_tokens[index]):
            logits = program.logits(hidden[offset + first : offset + first + count])
            scores[row] += special.score_prompt(row, chunks.starts[index] + first, logits)
    return scores
