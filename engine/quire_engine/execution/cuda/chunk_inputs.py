"""Arrays of a step with prompts in it: of this step's sizes, or padded to those of a graph.

    tokens      | decodes | prompts' | padding |
    sequences   | decodes | padding, without a token | prompts | padding, without a token |
    samples     | of those that sample, in order | padding |

Decodes are padded where they are counted and not where their tokens lie, so the widths of both can
be chosen apart. All padding is of the padding row.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quire_engine.execution.cuda.buckets import PromptShape
from quire_engine.execution.cuda.inputs import InputBuffers, Ints, StepTensors


@dataclass(frozen=True, eq=False)
class ChunkArrays:
    """A batch's chunks, decodes first; [num_chunks] each."""

    rows: Ints
    starts: Ints
    """Tokens of each row that are computed already."""
    counts: Ints
    """Tokens to compute, at least 1 each."""
    samples: NDArray[np.bool_]
    num_decodes: int


_NONE = np.empty(0, np.int32)
NOBODY = ChunkArrays(_NONE, _NONE, _NONE, np.empty(0, np.bool_), num_decodes=0)
"""Of a step of padding alone."""


def place_chunks(
    buffers: InputBuffers,
    tokens: Ints,
    num_given: Ints,
    chunks: ChunkArrays,
    *,
    truncates: bool,
    shape: PromptShape | None = None,
    padding_row: int = 0,
) -> StepTensors:
    """Put the arrays of a step with prompts in it.

    Parameters
    ----------
    tokens, num_given
        The rows' known tokens, and how many each started with: `RowMemory`'s.
    shape
        What to pad to, and that it fits; None: nothing is padded, and there is a chunk.
    padding_row
        Whose the padding is.
    """
    rows, starts, counts, samples = chunks.rows, chunks.starts, chunks.counts, chunks.samples
    num_decodes = chunks.num_decodes
    ends = np.cumsum(counts, dtype=np.int32)
    total = int(ends[-1]) if len(ends) else 0
    owners = np.repeat(rows, counts)
    positions = np.arange(total, dtype=np.int32) - np.repeat(ends - counts - starts, counts)
    given = tokens[owners, positions]
    decodes = slice(num_decodes)
    given[decodes][starts[decodes] >= num_given[rows[decodes]]] = -1
    lengths = starts + counts
    of_tokens = [owners, positions, given]
    of_sequences = [rows, lengths]
    cu_seqlens = np.concatenate([[0], ends]).astype(np.int32)
    of_samples = [rows[samples], lengths[samples], ends[samples] - 1]
    if shape is not None:
        of_tokens = _pad(of_tokens, (padding_row, 0, 0), shape.num_tokens)
        of_sequences = _spread(of_sequences, (padding_row, 1), shape, num_decodes)
        cu_seqlens = _spread_starts(cu_seqlens, shape, num_decodes)
        of_samples = _pad(of_samples, (padding_row, 1, 0), shape.num_seqs)
    token_rows, token_positions, token_given = map(buffers.place, of_tokens)
    seq_rows, context_lens = map(buffers.place, of_sequences)
    placed_starts = buffers.place(cu_seqlens)
    sample_rows, sample_positions, sample_index = map(buffers.place, of_samples)
    return StepTensors(
        token_rows=token_rows,
        positions=token_positions,
        given=token_given,
        seq_rows=seq_rows,
        context_lens=context_lens,
        cu_seqlens=placed_starts,
        sample_rows=sample_rows,
        sample_positions=sample_positions,
        sample_index=sample_index,
        num_decodes=num_decodes if shape is None else shape.num_decodes,
        truncates=truncates,
        max_prompt_tokens=None if shape is None else shape.num_tokens,
    )


def _pad(arrays: list[Ints], fillers: tuple[int, ...], size: int) -> list[Ints]:
    padded = []
    for values, filler in zip(arrays, fillers, strict=True):
        whole = np.full(size, filler, np.int32)
        whole[: len(values)] = values
        padded.append(whole)
    return padded


def _spread(
    arrays: list[Ints], fillers: tuple[int, ...], shape: PromptShape, num_decodes: int
) -> list[Ints]:
    """Put decodes at the beginning and prompts behind the widest decodes."""
    spread = []
    for values, filler in zip(arrays, fillers, strict=True):
        whole = np.full(shape.num_seqs, filler, np.int32)
        whole[:num_decodes] = values[:num_decodes]
        prompts = values[num_decodes:]
        whole[shape.num_decodes :][: len(prompts)] = prompts
        spread.append(whole)
    return spread


def _spread_starts(cu_seqlens: Ints, shape: PromptShape, num_decodes: int) -> Ints:
    """The same for where sequences start: those that pad have no token."""
    whole = np.full(shape.num_seqs + 1, cu_seqlens[-1], np.int32)
    width = shape.num_decodes
    np.minimum(np.arange(width + 1), num_decodes, out=whole[: width + 1])
    prompts = cu_seqlens[num_decodes:]
    whole[width:][: len(prompts)] = prompts
    return whole
