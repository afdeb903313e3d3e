"""Rows that ask for more than a temperature and a few cuts: rules, grammars, and scores.

The executors' usual way to a token knows nothing of these rows; a step in which one of them is
to get a token goes through `choose`, and a step that computes prompts that are to be scored
through `score_prompt`. Nothing is kept for the other rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from quire_engine.execution.base import Chunks, StartedRow
from quire_engine.execution.grammar_rows import GrammarRows
from quire_engine.execution.logit_rules import LogitRules
from quire_engine.execution.logprobs import score_tokens
from quire_engine.protocol.sampling import TokenLogprobs

T = TypeVar("T")
Pick = Callable[[torch.Tensor], list[int]]
"""Chooses a token for each row of logits: [num_rows, vocab], float32."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Tokens, and what is to be said of them."""

    token_ids: list[int]
    """One for each row."""
    logprobs: list[TokenLogprobs | None] | None = None
    """Their scores where any row wants some."""
    impossible: tuple[int, ...] = ()
    """Indices where no token could be chosen: none of those permitted had a finite logit."""


PIECE_TOKENS = 64
"""Positions of a prompt whose logits are there at a time: 64 of 150,000 tokens are 40 MB."""


def scored_pieces(num_tokens: int) -> Iterator[tuple[int, int]]:
    """Cut a chunk that is to be scored into pieces: (first token of it, number of tokens)."""
    for first in range(0, num_tokens, PIECE_TOKENS):
        yield first, min(PIECE_TOKENS, num_tokens - first)


class SpecialRows:
    """Which rows of an executor are special, and how."""

    def __init__(self) -> None:
        self._rules = LogitRules()
        self._grammars = GrammarRows()
        self._num_logprobs: dict[int, int] = {}
        self._prompts: dict[int, _ScoredPrompt] = {}

    def start(self, started: StartedRow) -> None:
        """Take a row's wishes; forgets what the row was before."""
        row, sampling = started.row, started.sampling
        self._rules.start(started)
        self._grammars.start(started)
        _put(self._num_logprobs, row, sampling.num_logprobs)
        is_new = len(started.token_ids) == started.num_prompt_tokens
        wants_prompt = sampling.num_prompt_logprobs is not None and is_new
        _put(self._prompts, row, _ScoredPrompt(started) if wants_prompt else None)

    def concern(self, rows: Sequence[int]) -> bool:
        """Whether the choice of a token for any of these rows must go through `choose`."""
        return (
            self._rules.concern(rows)
            or self._grammars.concern(rows)
            or (bool(self._num_logprobs) and not self._num_logprobs.keys().isdisjoint(rows))
        )

    def choose(
        self, logits: torch.Tensor, rows: Sequence[int], positions: Sequence[int], pick: Pick
    ) -> Chosen:
        """Choose tokens as the rules and the grammars want it.

        Parameters
        ----------
        logits
            [len(rows), vocab], any floating type and device; may be changed.
        positions
            Position of each row's token.
        pick
            What chooses once the logits are as the rules want them.
        """
        scored = [index for index, row in enumerate(rows) if row in self._num_logprobs]
        raw = logits[scored] if scored else logits  # a copy: the rules come after
        if self._rules.concern(rows):
            logits = self._rules.apply(logits, rows, positions)
        has_grammars = self._grammars.concern(rows)
        if has_grammars:
            logits = self._grammars.apply(logits, rows, positions)
        token_ids = pick(logits)
        self._rules.append(rows, positions, token_ids)
        scores = self._score(raw, rows, scored, token_ids) if scored else None
        # the last thing that changes: if anything before it fails, the step is computed again
        impossible = self._grammars.advance(rows, token_ids) if has_grammars else ()
        return Chosen(token_ids, scores, impossible)

    def _score(
        self,
        logits: torch.Tensor,
        rows: Sequence[int],
        scored: Sequence[int],
        token_ids: Sequence[int],
    ) -> list[TokenLogprobs | None]:
        """Score the tokens of rows that want it, whose logits these are."""
        scores: list[TokenLogprobs | None] = [None] * len(rows)
        tokens = [token_ids[index] for index in scored]
        tops = [self._num_logprobs[rows[index]] for index in scored]
        for index, score in zip(scored, score_tokens(logits, tokens, tops), strict=True):
            scores[index] = score
        return scores

    def scored_chunks(self, chunks: Chunks) -> list[int]:
        """Return the chunks, by index, that have tokens of a prompt to be scored."""
        if not self._prompts:
            return []
        spans = zip(chunks.rows, chunks.starts, strict=True)
        return [index for index, (row, start) in enumerate(spans) if self._is_scored(row, start)]

    def score_prompt(self, row: int, start: int, logits: torch.Tensor) -> list[TokenLogprobs]:
        """Score the prompt's tokens that follow some of its positions.

        Parameters
        ----------
        start
            The first position.
        logits
            [num_positions, vocab]: what the model says at these positions. The last position of a
            prompt is followed by no token of it, and gets no score.
        """
        prompt = self._prompts[row]
        targets = prompt.token_ids[start + 1 : start + 1 + len(logits)]
        return score_tokens(logits[: len(targets)], targets, [prompt.num_top] * len(targets))

    def _is_scored(self, row: int, start: int) -> bool:
        prompt = self._prompts.get(row)
        return prompt is not None and start < len(prompt.token_ids)


class _ScoredPrompt:
    """A prompt that is to be scored."""

    __slots__ = ("num_top", "token_ids")

    def __init__(self, started: StartedRow) -> None:
        self.token_ids = started.token_ids
        self.num_top = started.sampling.num_prompt_logprobs or 0


def _put(mapping: dict[int, T], row: int, value: T | None) -> None:
    if value is None:
        mapping.pop(row, None)
    else:
        mapping[row] = value
