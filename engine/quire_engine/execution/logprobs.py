"""Scores of tokens: logarithms of their probabilities, by the model's own logits."""

from collections.abc import Sequence

import torch

from quire_engine.protocol.sampling import TokenLogprobs

_ROWS_AT_A_TIME = 64
"""Bounds the memory of scoring: 64 rows of 150,000 tokens are 40 MB."""


def score_tokens(
    logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenLogprobs]:
    """Score one token per row, and the most likely ones beside it.

    Parameters
    ----------
    logits
        [num_rows, vocab], any floating type and device; not changed.
    token_ids
        The token to score in each row.
    num_top
        How many of the most likely tokens each row wants, at least 0.
    """
    scores: list[TokenLogprobs] = []
    for first in range(0, len(token_ids), _ROWS_AT_A_TIME):
        rows = slice(first, first + _ROWS_AT_A_TIME)
        scores += _score_rows(logits[rows], token_ids[rows], num_top[rows])
    return scores


def _score_rows(
    logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenLogprobs]:
    logprobs = logits.float().log_softmax(dim=-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])
    ranks = (logprobs > chosen).sum(dim=-1) + 1
    top = logprobs.topk(min(max(num_top), logprobs.shape[-1]), dim=-1)
    return [
        TokenLogprobs(
            logprob=logprob,
            rank=rank,
            top_ids=tuple(ids[:wanted]),
            top_logprobs=tuple(values[:wanted]),
        )
        for logprob, rank, ids, values, wanted in zip(
            chosen.squeeze(1).tolist(),
            ranks.tolist(),
            top.indices.tolist(),
            top.values.tolist(),
            num_top,
            strict=True,
        )
    ]
