"""Beam search over scores: which continuations go on, which have ended, and when it is over.

    beams (at most `width`) ──► best candidates over all of them, by the sum of log probabilities
                                  │ ended, among the best `width`:  kept, by their score
                                  │ not ended, the best `width`:    the next beams
                                  └ over: see `BeamParams.early_stopping`

It gives what transformers gives (`GenerationMixin._beam_search`), for one prompt: the score of an
ended continuation is its sum of log probabilities / number of tokens ** length penalty, its end
token counted; one that ends behind the best `width` candidates is dropped. Equal candidates are
taken in the order of their beams. Pure: no blocks, rows or clocks here.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from math import inf

from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import FinishReason
from quire_engine.protocol.sampling import TokenLogprobs

Spell = Callable[[int], bytes]
"""The bytes that a token adds to the text."""


class Hypothesis:
    """A continuation: its newest token, and the continuation that this one was added to.

    Continuations with a common beginning share it, so that a fork costs nothing however long.
    """

    __slots__ = ("logprob", "num_tokens", "parent", "score", "tail", "token_id")

    def __init__(
        self,
        parent: "Hypothesis | None",
        token_id: int,
        logprob: float,
        score: TokenLogprobs | None = None,
        tail: bytes = b"",
    ) -> None:
        self.parent = parent
        self.token_id = token_id
        self.logprob = logprob
        """Sum of the tokens' log probabilities."""
        self.score = score
        """The newest token's, where somebody wants to see it."""
        self.tail = tail
        """End of the text, as far as a stop text could begin there."""
        self.num_tokens: int = parent.num_tokens + 1 if parent else 0

    def path(self) -> list["Hypothesis"]:
        """Return it and those it grew from, one per token, the first token's first."""
        nodes: list[Hypothesis] = []
        node: Hypothesis | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


@dataclass(frozen=True, slots=True)
class Ended:
    """A continuation that has ended."""

    hypothesis: Hypothesis
    reason: FinishReason
    score: float
    """With the length penalty; the larger, the better."""


@dataclass(frozen=True, slots=True)
class Extension:
    """What one of the next beams grew from."""

    parent: int
    """Its place among the beams before."""
    token_id: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    parent: int
    place: int
    """Of the token among the most likely ones of its beam."""
    token_id: int
    logprob: float
    """Of the whole continuation."""


class BeamSearch:
    """The state of one search.

    Parameters
    ----------
    max_tokens
        A continuation of so many tokens has ended.
    stop_token_ids
        A continuation ends with any of these.
    min_tokens
        None of a continuation's first so many tokens ends it.
    num_shown
        Keep each token's score with so many of the most likely tokens; None keeps none.
    spell
        Needed with `params.stop_texts`.
    """

    def __init__(
        self,
        params: BeamParams,
        *,
        max_tokens: int,
        stop_token_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,
        num_shown: int | None = None,
        spell: Spell | None = None,
    ) -> None:
        self.params = params
        self._max_tokens = max_tokens
        self._stop_token_ids = stop_token_ids
        self._min_tokens = min_tokens
        self._num_shown = num_shown
        self._spell = spell
        self._stops = tuple(text.encode() for text in params.stop_texts)
        self._tail_bytes = max(map(len, self._stops), default=1) - 1
        self.beams = [Hypothesis(None, 0, 0.0)]
        """Those that go on, the likeliest first; at the beginning the prompt alone."""
        self.ended: list[Ended] = []
        """The best that have ended, the best first, at most `width`."""

    @property
    def num_candidates(self) -> int:
        """How many of the most likely tokens must be known of each beam.

        Were all stop tokens among them, `width` would still be there to go on with.
        """
        return self.params.width + len(self._stop_token_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens that each beam has."""
        return self.beams[0].num_tokens if self.beams else self._max_tokens

    @property
    def is_over(self) -> bool:
        """Whether no beam goes on, or none is worth it."""
        if not self.beams:
            return True
        if len(self.ended) < self.params.width:
            return False
        if self.params.early_stopping is True:
            return True
        return self._best_possible_score() <= self.ended[-1].score

    def advance(self, scores: Sequence[TokenLogprobs]) -> list[Extension]:
        """Extend all beams by a token; returns what each of the next beams grew from.

        Parameters
        ----------
        scores
            Of each beam, with at least `num_candidates` most likely tokens, or the vocabulary.
        """
        width = self.params.width
        going: list[tuple[_Candidate, Hypothesis]] = []
        ended: list[Ended] = []
        for place, candidate in enumerate(self._candidates(scores)):
            hypothesis = self._extend(candidate, scores[candidate.parent])
            reason = self._reason_to_end(hypothesis)
            if reason is None:
                going.append((candidate, hypothesis))
            elif place < width:
                ended.append(Ended(hypothesis, reason, self._score(hypothesis)))
            if place + 1 >= width and (len(going) >= width or reason is FinishReason.LENGTH):
                break
        best = sorted(chain(self.ended, ended), key=lambda one: one.score, reverse=True)
        self.ended = best[:width]
        self.beams = [hypothesis for _, hypothesis in going]
        return [Extension(candidate.parent, candidate.token_id) for candidate, _ in going]

    def _candidates(self, scores: Sequence[TokenLogprobs]) -> Iterator[_Candidate]:
        """Yield continuations by one token, the likeliest first."""
        of_beams = (
            self._candidates_of(parent, beam.logprob, score)
            for parent, (beam, score) in enumerate(zip(self.beams, scores, strict=True))
        )
        return merge(*of_beams, key=lambda candidate: -candidate.logprob)

    def _candidates_of(
        self, parent: int, logprob: float, score: TokenLogprobs
    ) -> Iterator[_Candidate]:
        may_stop = self.num_tokens >= self._min_tokens
        for place, token_id in enumerate(score.top_ids):
            added = score.top_logprobs[place]
            if added > -inf and (may_stop or token_id not in self._stop_token_ids):
                yield _Candidate(parent, place, token_id, logprob + added)

    def _extend(self, candidate: _Candidate, score: TokenLogprobs) -> Hypothesis:
        parent = self.beams[candidate.parent]
        shown = None if self._num_shown is None else _show(score, candidate.place, self._num_shown)
        tail = b""
        if self._stops and self._spell is not None:
            tail = parent.tail + self._spell(candidate.token_id)
        return Hypothesis(parent, candidate.token_id, candidate.logprob, shown, tail)

    def _reason_to_end(self, hypothesis: Hypothesis) -> FinishReason | None:
        may_stop = hypothesis.num_tokens > self._min_tokens
        if may_stop and hypothesis.token_id in self._stop_token_ids:
            return FinishReason.STOP
        if may_stop and any(stop in hypothesis.tail for stop in self._stops):
            return FinishReason.STOP
        if hypothesis.num_tokens >= self._max_tokens:
            return FinishReason.LENGTH
        # the text before is not looked at again: no stop text ends there
        hypothesis.tail = hypothesis.tail[-self._tail_bytes :] if self._tail_bytes else b""
        return None

    def _score(self, hypothesis: Hypothesis) -> float:
        return _penalize(hypothesis.logprob, hypothesis.num_tokens, self.params.length_penalty)

    def _best_possible_score(self) -> float:
        """Return what the best beam's score would be, by the rule of `early_stopping`."""
        best, penalty = self.beams[0], self.params.length_penalty
        is_open = self.params.early_stopping == "never" and penalty > 0.0
        length = self._max_tokens if is_open else best.num_tokens
        return _penalize(best.logprob, length, penalty)


def _penalize(logprob: float, num_tokens: int, length_penalty: float) -> float:
    return logprob / math.pow(num_tokens, length_penalty)


def _show(score: TokenLogprobs, place: int, num_shown: int) -> TokenLogprobs:
    """Return one candidate's score as if it had been sampled."""
    logprob = score.top_logprobs[place]
    return TokenLogprobs(
        logprob=logprob,
        rank=1 + sum(other > logprob for other in score.top_logprobs[:place]),
        top_ids=score.top_ids[:num_shown],
        top_logprobs=score.top_logprobs[:num_shown],
    )
