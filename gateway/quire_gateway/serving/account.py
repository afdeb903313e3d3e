"""What a request is counted as: against its key's limits, in metrics, and as demand.

It is counted by an estimate when it comes, and corrected when its engine says what it took.
"""

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.choosing.demand import Demand
from quire_gateway.routing.document import ApiKey
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.relay import Outcome
from quire_gateway.serving.service import Service
from quire_gateway.serving.wish import Wish


class Account:
    """Of one request."""

    __slots__ = ("_demand", "_key", "_metrics", "_service", "_size", "_wish")

    def __init__(
        self, service: Service, key: ApiKey, wish: Wish, demand: Demand, metrics: GatewayMetrics
    ) -> None:
        self._service = service
        self._key = key
        self._wish = wish
        self._demand = demand
        self._metrics = metrics
        self._size = demand.num_prompt_tokens + demand.num_output_tokens * demand.num_sequences

    def open(self) -> None:
        """Count it as it comes.

        Raises
        ------
        ApiError
            429: its key's limits do not allow it.
        """
        self._service.access.spend(self._key, self._size, self._wish.arrived_at)
        self.arrive()

    def arrive(self) -> None:
        """Count it as demand, whatever its key may."""
        is_retry = self._wish.is_retry
        self._service.arrivals.arrive(self._demand.num_prompt_tokens, is_retry=is_retry)

    def charge(self, now: float) -> None:
        """Count it against its key's limits, though they were not asked."""
        self._service.access.charge(self._key, self._size, now)

    def refuse(self, reason: str, now: float) -> None:
        """It took nothing."""
        self._correct(-self._size, now)
        wish = self._wish
        # its own deadline may be one that nobody can keep
        is_own = wish.own_deadline is not None and wish.deadline == wish.own_deadline
        self._service.arrivals.refuse(
            reason, is_promised=not (wish.is_background or wish.is_retry or is_own)
        )

    def leave(self, now: float, *, was_sent: bool) -> None:
        """Its client has left: it took nothing, or what nobody will say."""
        if was_sent:
            self._count_tokens("estimated", self._size)
        else:
            self._correct(-self._size, now)

    def close(self, outcome: Outcome, first_byte_at: float | None, now: float) -> None:
        """Count what it took, as far as that is known."""
        if outcome.status >= 400:
            self._correct(-self._size, now)
            return
        usage = outcome.usage
        if usage is None:
            self._count_tokens("estimated", self._size)
            return
        self._correct(usage.num_tokens - self._size, now)
        self._count_tokens("prompt", usage.num_prompt_tokens)
        self._count_tokens("completion", usage.num_output_tokens)
        self._service.arrivals.end(self._wish.num_prompt_tokens, usage)
        if first_byte_at is not None and self._wish.is_stream and not self._demand.is_background:
            self._judge_promises(usage, first_byte_at, now)

    def _count_tokens(self, kind: str, amount: float) -> None:
        self._metrics.key_tokens.count((self._service.label, self._key.name, kind), amount)

    def _correct(self, num_more: float, now: float) -> None:
        self._service.access.correct(self._key, num_more, now)

    def _judge_promises(self, usage: TokenUsage, first_byte_at: float, now: float) -> None:
        """Count whether the first token and the pace were as promised; streams show both."""
        limits = self._service.document.thresholds
        promised = limits.slo_time_to_first_token_seconds
        if promised is not None:
            seconds = first_byte_at - self._wish.arrived_at
            self._service.arrivals.first_token.count(seconds, promised)
        promised = limits.slo_time_per_output_token_seconds
        if promised is not None and usage.num_output_tokens > 1:
            seconds = (now - first_byte_at) / (usage.num_output_tokens - 1)
            self._service.arrivals.output_token.count(seconds, promised)
