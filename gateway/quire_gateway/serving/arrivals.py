"""What is asked of a service, for whoever sizes its fleet: counts since the gateway started.

Rates are differences of counts: of two reports, or of the sums over all gateways. A request that a
client's library sends again by itself (`x-stainless-retry-count`) is no new demand.
"""

from bisect import bisect_left
from collections import Counter

import msgspec

from quire_engine.protocol.token_usage import TokenUsage

PROMPT_BOUNDS = (128, 512, 2048, 8192, 32768)
"""Tokens: the largest of each bucket but the last."""
OUTPUT_BOUNDS = (32, 128, 512, 2048)

_MEMORY = 0.995
_PRIOR_TOKENS = 2000.0
_RATIOS = (0.2, 5.0)


class DemandReport(msgspec.Struct, kw_only=True):
    """What was asked of one service."""

    seconds: float
    """Since counting began."""
    prompt_bounds: tuple[int, ...] = PROMPT_BOUNDS
    output_bounds: tuple[int, ...] = OUTPUT_BOUNDS
    arrivals: list[int]
    """Requests that keys allow, by the length of their prompts, as it is estimated."""
    num_retries: int
    """Requests besides, that clients' libraries sent again."""
    ended: list[list[int]]
    """Answered requests by the length of prompt and of output, as engines counted them."""
    prompt_tokens: int
    """Of these."""
    output_tokens: int
    cached_tokens: int
    """Of the prompts', those that were not computed."""
    refusals: dict[str, int]
    """By reason."""
    first_token: "Attainment"
    """Of interactive streams, if there is such a promise."""
    output_token: "Attainment"


class Attainment(msgspec.Struct, kw_only=True):
    """How a promise was kept."""

    met: int = 0
    missed: int = 0

    def count(self, seconds: float, promised_seconds: float) -> None:
        """Count a request."""
        if seconds <= promised_seconds:
            self.met += 1
        else:
            self.missed += 1


class Arrivals:
    """Counts of one service."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._arrivals = [0] * (len(PROMPT_BOUNDS) + 1)
        self._ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in self._arrivals]
        self._num_retries = 0
        self._num_prompt_tokens = self._num_output_tokens = self._num_cached_tokens = 0
        self._refusals: Counter[str] = Counter()
        self._estimated = self._counted = _PRIOR_TOKENS
        self.first_token = Attainment()
        self.output_token = Attainment()

    @property
    def tokens_per_estimated(self) -> float:
        """By what the estimate of a prompt's length is multiplied: learnt from engines' counts."""
        return min(max(self._counted / self._estimated, _RATIOS[0]), _RATIOS[1])

    def arrive(self, num_prompt_tokens: int, *, is_retry: bool) -> None:
        """Count a request."""
        if is_retry:
            self._num_retries += 1
        else:
            self._arrivals[bisect_left(PROMPT_BOUNDS, num_prompt_tokens)] += 1

    def refuse(self, reason: str) -> None:
        """Count a refusal."""
        self._refusals[reason] += 1

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
        self._estimated = _MEMORY * self._estimated + num_estimated_tokens
        self._counted = _MEMORY * self._counted + usage.num_prompt_tokens

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
            first_token=self.first_token,
            output_token=self.output_token,
        )
