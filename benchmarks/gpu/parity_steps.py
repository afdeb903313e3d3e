"""The steps in which parity's texts are computed: all at once, or in chunks beside decodes.

Both put each row's blocks where they are told: with block numbers high in a large cache, offsets
into it pass 2**31 elements, and all else is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quire_engine.execution.base import Batch, Chunks, Executor, StartedRow
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs

NUM_OUTPUT = 32
BLOCKS_PER_ROW = 32
ARRIVALS, CHUNK = 4, 112
"""Texts that begin in each step where they come in chunks, and most tokens of a chunk."""

Tokens = list[list[int]]


def started_row(row: int, text: list[int], sampling: SamplingParams, first: int) -> StartedRow:
    """A row whose blocks begin behind those of the rows before it, the first row's at `first`."""
    begin = first + BLOCKS_PER_ROW * row
    blocks = list(range(begin, begin + BLOCKS_PER_ROW))
    return StartedRow(row, text, blocks, sampling, len(text), row)


def start_all(texts: Sequence[list[int]], sampling: SamplingParams, first: int) -> Batch:
    """All texts whole, in one step, each with blocks of its own."""
    rows, lengths = list(range(len(texts))), [len(text) for text in texts]
    started = [started_row(row, text, sampling, first) for row, text in enumerate(texts)]
    chunks = Chunks(rows, [0] * len(rows), lengths, [True] * len(rows), 0)
    return Batch(started=started, chunks=chunks, total_tokens=sum(lengths))


def generate_at_once(
    executor: Executor,
    texts: Sequence[list[int]],
    num_logprobs: int | None = None,
    *,
    first: int = 1,
    num_output: int = NUM_OUTPUT,
) -> tuple[Tokens, list[list[TokenLogprobs | None]]]:
    """Greedy tokens of each text, all begun in one step, and their scores where asked for."""
    sampling = SamplingParams(max_tokens=num_output, temperature=0.0, num_logprobs=num_logprobs)
    count = len(texts)
    results = [executor.run(start_all(texts, sampling, first))]
    for step in range(num_output - 1):
        starts = [len(text) + step for text in texts]
        chunks = Chunks(list(range(count)), starts, [1] * count, [True] * count, count)
        results.append(executor.run(Batch(chunks=chunks, total_tokens=count)))
    tokens = [list(column) for column in zip(*(r.token_ids for r in results), strict=True)]
    scores = [[(r.logprobs or [None] * count)[row] for r in results] for row in range(count)]
    return tokens, scores


def generate_in_chunks(
    executor: Executor,
    texts: Sequence[list[int]],
    *,
    first: int = 1,
    num_output: int = NUM_OUTPUT,
    most: int = CHUNK,
) -> tuple[Tokens, int]:
    """Greedy tokens of each text, begun one after the other, and how many steps had prompts.

    A server's steps: a few chunks of prompts, beside the decodes of those who came before. Each
    samples something, so that it may run from a graph: the first texts are no longer than a chunk.

    Parameters
    ----------
    most
        Tokens of a chunk.
    """
    sampling = SamplingParams(max_tokens=num_output, temperature=0.0)
    tokens: Tokens = [[] for _ in texts]
    computed: list[int] = []
    num_with_prompts = 0
    while min(map(len, tokens)) < num_output:
        arrived = range(len(computed), min(len(computed) + ARRIVALS, len(texts)))
        computed += [0] * len(arrived)
        chunks = _next_chunks(texts, tokens, computed, num_output, most)
        started = [started_row(row, texts[row], sampling, first) for row in arrived]
        result = executor.run(
            Batch(started=started, chunks=chunks, total_tokens=sum(chunks.num_tokens))
        )
        sampled = iter(result.token_ids)
        for row, count, samples in zip(chunks.rows, chunks.num_tokens, chunks.samples, strict=True):
            computed[row] += count
            if samples:
                tokens[row].append(next(sampled))
        num_with_prompts += chunks.num_decodes < len(chunks)
    return tokens, num_with_prompts


def _next_chunks(
    texts: Sequence[list[int]], tokens: Tokens, computed: list[int], num_output: int, most: int
) -> Chunks:
    """What rows that have begun and not ended compute next; decodes first."""
    rows = [row for row in range(len(computed)) if len(tokens[row]) < num_output]
    left = {row: len(texts[row]) + len(tokens[row]) - computed[row] for row in rows}
    rows.sort(key=lambda row: left[row] > 1)
    return Chunks(
        rows=rows,
        starts=[computed[row] for row in rows],
        num_tokens=[min(left[row], most) for row in rows],
        samples=[left[row] <= most for row in rows],
        num_decodes=sum(left[row] == 1 for row in rows),
    )


def perplexity(executor: Executor, texts: Sequence[list[int]], *, first: int = 1) -> float:
    """Of some texts, by the scores of prompts."""
    sampling = SamplingParams(max_tokens=1, temperature=0.0, num_prompt_logprobs=0)
    scores = executor.run(start_all(texts, sampling, first)).prompt_logprobs or {}
    losses = [-score.logprob for row in scores.values() for score in row]
    return math.exp(sum(losses) / len(losses))
