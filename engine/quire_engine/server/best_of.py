"""Of several sampled answers, those that the model finds likeliest."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire_engine.server.answers import WholeAnswer
from quire_engine.server.schemas.parameters import GenerationParameters


@dataclass(frozen=True, slots=True)
class BestOf:
    """Keeps the likeliest of several sampled answers to each prompt."""

    num_made: int
    num_kept: int
    shows_scores: bool

    def choose(
        self, answers: Sequence[WholeAnswer], num_generated: Sequence[int]
    ) -> list[WholeAnswer]:
        """Return each prompt's best by the mean of their tokens' log probabilities.

        Parameters
        ----------
        num_generated
            Tokens of each answer; those of an echoed prompt do not count.
        """
        kept: list[WholeAnswer] = []
        for first in range(0, len(answers), self.num_made):
            places = range(first, first + self.num_made)
            ranked = sorted(places, key=lambda place: -_mean(answers[place], num_generated[place]))
            kept += [answers[place] for place in ranked[: self.num_kept]]
        return [
            replace(answer, index=index, tokens=answer.tokens if self.shows_scores else None)
            for index, answer in enumerate(kept)
        ]


def best_of(request: GenerationParameters) -> BestOf | None:
    """What chooses among a request's answers, if more are made than wanted."""
    made, wanted = request.num_sequences(), request.num_answers()
    return BestOf(made, wanted, request.num_logprobs() is not None) if made > wanted else None


def _mean(answer: WholeAnswer, num_generated: int) -> float:
    tokens = (answer.tokens or [])[-num_generated:] if num_generated else []
    scores = [token.score.logprob for token in tokens if token.score is not None]
    return sum(scores) / len(scores) if scores else float("-inf")
