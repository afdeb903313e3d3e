"""Steps with rows that ask for more than the captured kernels do: rules for logits, scores.

They run kernel by kernel, and wait for their tokens: the next token's rules look at them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from quire_engine.execution.base import Chunks
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.step import StepProgram
from quire_engine.execution.special_rows import SpecialRows, scored_pieces
from quire_engine.protocol.sampling import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Scores:
    """What a step says of its tokens beside which they are; see `StepResult`."""

    logprobs: list[TokenLogprobs | None] | None = None
    prompt_logprobs: dict[int, list[TokenLogprobs]] | None = None
    impossible: tuple[int, ...] = ()


def is_special(special: SpecialRows, chunks: Chunks) -> bool:
    """Whether a step has to go through `compute_special`."""
    return special.concern(chunks.rows) or bool(special.scored_chunks(chunks))


def compute_special(
    program: StepProgram, special: SpecialRows, step: StepTensors, chunks: Chunks
) -> Scores:
    """Compute a step whose inputs are on their way; its tokens are in `program.sampled`.

    Parameters
    ----------
    step
        Made of `chunks`, all in their order.
    """
    scored = special.scored_chunks(chunks)
    hidden = program.forward(step, None if scored else step.sample_index)
    prompts = _score_prompts(program, special, chunks, scored, hidden) if scored else None
    sampling = [index for index, samples in enumerate(chunks.samples) if samples]
    if not sampling:
        return Scores(None, prompts)
    if scored and step.sample_index is not None:
        hidden = hidden.index_select(0, step.sample_index)

    def pick(logits: torch.Tensor) -> list[int]:
        program.sample(step, logits)
        # a row without finite logits has -1, and its request ends with this step
        tokens: list[int] = program.sampled[: len(sampling)].clamp(min=0).tolist()
        return tokens

    rows = [chunks.rows[index] for index in sampling]
    positions = [chunks.starts[index] + chunks.num_tokens[index] for index in sampling]
    chosen = special.choose(program.logits(hidden), rows, positions, pick)
    return Scores(chosen.logprobs, prompts, chosen.impossible)


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
