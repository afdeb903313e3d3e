"""Puts scores of tokens into the shapes of the APIs."""

import math
from collections.abc import Sequence

from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.server.schemas.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)
from quire_engine.server.text_maker import ScoredToken
from quire_engine.tokenizing.spelling import Spelling

_LOWEST = -9999.0
"""Stands for tokens that cannot come: JSON has no infinity, and clients know this number."""


def show_chat_scores(tokens: Sequence[ScoredToken], spelling: Spelling) -> ChatLogprobs:
    """Show scores as chat completions do."""
    return ChatLogprobs(content=[_show_token(token, spelling) for token in tokens])


def show_completion_scores(tokens: Sequence[ScoredToken], spelling: Spelling) -> CompletionLogprobs:
    """Show scores as text completions do."""
    return CompletionLogprobs(
        text_offset=[token.offset for token in tokens],
        token_logprobs=[
            None if token.score is None else bounded(token.score.logprob) for token in tokens
        ],
        tokens=[spelling.text_of(token.token_id) for token in tokens],
        top_logprobs=[
            None if token.score is None else _show_top(token.token_id, token.score, spelling)
            for token in tokens
        ],
    )


def show_prompt_scores(
    token_ids: Sequence[int], scores: Sequence[TokenLogprobs], spelling: Spelling
) -> PromptLogprobs:
    """Show a prompt's scores as vLLM does."""
    shown: PromptLogprobs = [None]
    for token_id, score in zip(token_ids[1:], scores, strict=True):
        ranked = enumerate(zip(score.top_ids, score.top_logprobs, strict=True), start=1)
        by_id = {top_id: (value, rank) for rank, (top_id, value) in ranked}
        by_id[token_id] = (score.logprob, score.rank)
        shown.append(
            {
                str(one): PromptLogprob(
                    logprob=bounded(value), rank=rank, decoded_token=spelling.text_of(one)
                )
                for one, (value, rank) in by_id.items()
            }
        )
    return shown


def bounded(logprob: float) -> float:
    """Return a number that JSON can carry."""
    return max(logprob, _LOWEST) if math.isfinite(logprob) else _LOWEST


def _show_token(token: ScoredToken, spelling: Spelling) -> TokenLogprob:
    score = token.score or TokenLogprobs(logprob=_LOWEST, rank=0)
    own = spelling.bytes_of(token.token_id)
    tops = zip(score.top_ids, score.top_logprobs, strict=True)
    return TokenLogprob(
        token=own.decode(errors="replace"),
        logprob=bounded(score.logprob),
        bytes=list(own),
        top_logprobs=[_show_one(top_id, value, spelling) for top_id, value in tops],
    )


def _show_one(token_id: int, logprob: float, spelling: Spelling) -> TopLogprob:
    own = spelling.bytes_of(token_id)
    return TopLogprob(token=own.decode(errors="replace"), logprob=bounded(logprob), bytes=list(own))


def _show_top(chosen: int, score: TokenLogprobs, spelling: Spelling) -> dict[str, float]:
    """The most likely tokens, and the one that came; of those with one text, the likeliest."""
    top: dict[str, float] = {}
    pairs = [*zip(score.top_ids, score.top_logprobs, strict=True), (chosen, score.logprob)]
    for token_id, value in pairs:
        top.setdefault(spelling.text_of(token_id), bounded(value))
    return top
