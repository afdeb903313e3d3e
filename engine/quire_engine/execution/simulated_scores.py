"""Scores of tokens that nobody computed: in form what a model's are, and the same every time.

The token is the most likely one, with half of the probability; the letters after it follow, each
with half of what the one before has.
"""

from math import log

from quire_engine.execution.base import Chunks, StartedRow
from quire_engine.protocol.sampling import TokenLogprobs

_HALF = log(0.5)
_NUM_LETTERS = 256


class SimulatedScores:
    """Remembers which rows want scores."""

    def __init__(self) -> None:
        self._num_logprobs: dict[int, int] = {}
        self._prompts: dict[int, tuple[list[int], int]] = {}

    def start(self, started: StartedRow) -> None:
        """Take a row's wishes; forgets what the row was before."""
        row, sampling = started.row, started.sampling
        self._num_logprobs.pop(row, None)
        self._prompts.pop(row, None)
        if sampling.num_logprobs is not None:
            self._num_logprobs[row] = sampling.num_logprobs
        is_new = len(started.token_ids) == started.num_prompt_tokens
        if sampling.num_prompt_logprobs is not None and is_new:
            self._prompts[row] = (started.token_ids, sampling.num_prompt_logprobs)

    def of_tokens(self, chunks: Chunks, token_ids: list[int]) -> list[TokenLogprobs | None] | None:
        """Score the tokens of chunks that sample; None if no row wants it."""
        wanted = self._num_logprobs
        if not wanted or wanted.keys().isdisjoint(chunks.rows):
            return None
        rows = [r for r, samples in zip(chunks.rows, chunks.samples, strict=True) if samples]
        return [
            make_score(token_id, wanted[row]) if row in wanted else None
            for row, token_id in zip(rows, token_ids, strict=True)
        ]

    def of_prompts(self, chunks: Chunks) -> dict[int, list[TokenLogprobs]] | None:
        """Score the prompts' tokens that follow the chunks' positions; None if none is wanted."""
        if not self._prompts:
            return None
        scores = {}
        for row, start, count in zip(chunks.rows, chunks.starts, chunks.num_tokens, strict=True):
            prompt, num_top = self._prompts.get(row, ([], 0))
            if start < len(prompt):
                targets = prompt[start + 1 : start + 1 + count]
                scores[row] = [make_score(token_id, num_top) for token_id in targets]
        return scores or None


def make_score(token_id: int, num_top: int) -> TokenLogprobs:
    """The score that a token always gets."""
    places = range(num_top)
    return TokenLogprobs(
        logprob=_HALF,
        rank=1,
        top_ids=tuple((token_id + place) % _NUM_LETTERS for place in places),
        top_logprobs=tuple(_HALF * (place + 1) for place in places),
    )
