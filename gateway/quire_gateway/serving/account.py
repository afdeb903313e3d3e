"""What a request is counted as: against its key's limits, in metrics, and as demand.

It is counted by an estimate when it comes, and corrected when its engine says what it took.
"""

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.choosing.demand import Demand
from quire_gateway.routing.document import ApiKey
from quire_gateway.serving.inquiry import Inquiry
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.record import Record
from quire_gateway.serving.service import Service


class Account:
    """Of one request."""

    __slots__ = ("_demand", "_inquiry", "_key", "_metrics", "_record", "_service", "_size")

    def __init__(
        self,
        service: Service,
        key: ApiKey,
        inquiry: Inquiry,
        demand: Demand,
        record: Record,
        metrics: GatewayMetrics,
    ) -> None:
        self._service = service
        self._key = key
        self._inquiry = inquiry
        self._demand = demand
        self._record = record
        self._metrics = metrics
        self._size = demand.num_prompt_tokens + demand.num_output_tokens * demand.num_sequences

    def open(self, *, is_retry: bool) -> None:
        """Count it as it comes.

        Raises
        ------
        ApiError
            429: its key's limits do not allow it.
        """
        self._service.access.spend(self._key, self._size, self._record.started_at)
        self._service.arrivals.arrive(self._demand.num_prompt_tokens, is_retry=is_retry)

    def refuse(self, reason: str, now: float) -> None:
        """It took nothing."""
        self._correct(-self._size, now)
        self._service.arrivals.refuse(reason)

    def leave(self, now: float, *, was_sent: bool) -> None:
        """Its client has left: it took nothing, or what nobody will say."""
        if was_sent:
            tokens = self._metrics.key_tokens
            tokens.labels(self._record.service, self._key.name, "estimated").inc(self._size)
        else:
            self._correct(-self._size, now)

    def close(self, status: int, usage: TokenUsage | None, now: float) -> None:
        """Count what it took, as far as that is known."""
        if status >= 400:
            self._correct(-self._size, now)
            return
        self._record.usage = usage
        service, key, tokens = self._record.service, self._key.name, self._metrics.key_tokens
        if usage is None:
            tokens.labels(service, key, "estimated").inc(self._size)
            return
        self._correct(usage.num_tokens - self._size, now)
        tokens.labels(service, key, "prompt").inc(usage.num_prompt_tokens)
        tokens.labels(service, key, "completion").inc(usage.num_output_tokens)
        self._service.arrivals.end(self._inquiry.num_prompt_tokens, usage)
        self._judge_promises(usage, now)

    def _correct(self, num_more: float, now: float) -> None:
        self._service.access.correct(self._key, num_more, now)

    def _judge_promises(self, usage: TokenUsage, now: float) -> None:
        """Count whether the first token and the pace were as promised; streams show both."""
        first_at, limits = self._record.first_byte_at, self._service.document.thresholds
        if first_at is None or not self._inquiry.is_stream or self._demand.is_background:
            return
        promised = limits.slo_time_to_first_token_seconds
        if promised is not None:
            seconds = first_at - self._record.started_at
            self._service.arrivals.first_token.count(seconds, promised)
        promised = limits.slo_time_per_output_token_seconds
        if promised is not None and usage.num_output_tokens > 1:
            seconds = (now - first_at) / (usage.num_output_tokens - 1)
            self._service.arrivals.output_token.count(seconds, promised)
