"""What is asked of a service, for whoever sizes its fleet: counts since the gateway started.

Rates are differences of counts: of two reports, or of the sums over all gateways. A request that a
client's library sends again by itself (`x-stainless-retry-count`) is no new demand.
"""

from bisect import bisect_left
from collections import Counter
from math import sqrt

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.serving.demand_report import (
    OUTPUT_BOUNDS,
    PROMPT_BOUNDS,
    Attainment,
    DemandReport,
)

__all__ = ["OUTPUT_BOUNDS", "PROMPT_BOUNDS", "Arrivals", "Attainment", "DemandReport"]

_MEMORY = 0.995
_PRIOR_TOKENS = 500.0
"""The first guess weighs as much as so many tokens: a few prompts tell more than it does."""
_PRIOR_ERROR = 0.1
_ERROR_MEMORY = 0.9
"""Shorter: what was wrong before the estimate had been learnt says nothing later."""
_FOR_WANT_OF_ROOM = frozenset({"queue_full", "deadline", "refused"})
_RATIOS = (0.2, 5.0)


class Arrivals:
    """Counts of one service."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._arrivals = [0] * (len(PROMPT_BOUNDS) + 1)
        self._ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in self._arrivals]
        self._num_retries = 0
        self._num_prompt_tokens = self._num_output_tokens = self._num_cached_tokens = 0
        self._refusals: Counter[str] = Counter()
        self._num_unserved = 0
        self._estimated = self._counted = _PRIOR_TOKENS
        self._squares = _PRIOR_TOKENS**2
        self._error_squares = (_PRIOR_ERROR * _PRIOR_TOKENS) ** 2
        self.first_token = Attainment()
        self.output_token = Attainment()

    @property
    def tokens_per_estimated(self) -> float:
        """By what the estimate of a prompt's length is multiplied: learnt from engines' counts."""
        return min(max(self._counted / self._estimated, _RATIOS[0]), _RATIOS[1])

    @property
    def prompt_error(self) -> float:
        """By what share of their length prompts differ from the estimate; learnt, too."""
        return min(sqrt(self._error_squares / self._squares), 1.0)

    def arrive(self, num_prompt_tokens: int, *, is_retry: bool) -> None:
        """Count a request."""
        if is_retry:
            self._num_retries += 1
        else:
            self._arrivals[bisect_left(PROMPT_BOUNDS, num_prompt_tokens)] += 1

    def refuse(self, reason: str, *, is_promised: bool = True) -> None:
        """Count a refusal.

        Parameters
        ----------
        is_promised
            Whether it is of those that the service's promises are for, and new.
        """
        self._refusals[reason] += 1
        self._num_unserved += is_promised and reason in _FOR_WANT_OF_ROOM

    def end(self, num_estimated_tokens: int, usage: TokenUsage) -> None:
        """Count an answer.

        Parameters
        ----------
        num_estimated_tokens
            Of the prompt, without `tokens_per_estimated`.
        """
        row = self._ended[bisect_left(PROMPT_BOUNDS, usage.num_prompt_tokens)]
        row[bisect_left(OUTPUT_BOUNDS, usage.num_output_tokens)] += 1
        self._num_prompt_tokens += usage.num_prompt_tokens
        self._num_output_tokens += usage.num_output_tokens
        self._num_cached_tokens += usage.num_cached_tokens
        self.learn(num_estimated_tokens, usage.num_prompt_tokens)

    def learn(self, num_estimated_tokens: int, num_counted_tokens: int) -> None:
        """Compare the estimate of a prompt's length with what an engine counted."""
        error = num_counted_tokens - num_estimated_tokens * self.tokens_per_estimated
        self._error_squares = _ERROR_MEMORY * self._error_squares + error**2
        self._squares = _ERROR_MEMORY * self._squares + num_counted_tokens**2
        self._estimated = _MEMORY * self._estimated + num_estimated_tokens
        self._counted = _MEMORY * self._counted + num_counted_tokens

    def report(self, now: float) -> DemandReport:
        """All counts."""
        return DemandReport(
            seconds=now - self._since,
            arrivals=list(self._arrivals),
            num_retries=self._num_retries,
            ended=[list(row) for row in self._ended],
            prompt_tokens=self._num_prompt_tokens,
            output_tokens=self._num_output_tokens,
            cached_tokens=self._num_cached_tokens,
            refusals=dict(self._refusals),
            num_unserved=self._num_unserved,
            first_token=self.first_token,
            output_token=self.output_token,
        )
