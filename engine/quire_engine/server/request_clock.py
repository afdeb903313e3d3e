"""Times one sequence and counts its tokens: for metrics, the log and traces."""

import time

from quire_engine.protocol.messages import AddRequest, TokenDelta
from quire_engine.server.metrics import ServerMetrics
from quire_engine.server.request_record import current_record


class RequestClock:
    """Runs from a request's arrival to its end; see `GenerationFigures` for what it finds.

    Parameters
    ----------
    computes_prompt
        False for further answers to a prompt that counts with the first.
    """

    def __init__(
        self, metrics: ServerMetrics, request: AddRequest, *, computes_prompt: bool = True
    ) -> None:
        self._metrics = metrics
        metrics.open_sequences.add()
        self._computes_prompt = computes_prompt
        self._comes_whole = request.beams is not None
        self.sampling = request.sampling
        self.prompt_token_ids = request.prompt_token_ids
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_generated = 0
        self.num_cached = 0
        self.arrived_at = time.perf_counter()
        self.first_token_at: float | None = None
        self.ended_at: float | None = None
        self.queue_seconds: float | None = None
        self.prefill_seconds: float | None = None
        self.decode_seconds: float | None = None
        self.finish_reason = "abort"
        self._last_token_at = self.arrived_at
        record = current_record.get()
        if record is not None:
            record.generations.append(self)

    def note(self, delta: TokenDelta) -> None:
        """Take over what the core says of the sequence, and count its tokens."""
        if delta.queue_seconds is not None:
            self._note_start(delta, delta.queue_seconds)
        if delta.decode_seconds is not None:
            self.decode_seconds = delta.decode_seconds
        if delta.token_ids:
            self._tick(len(delta.token_ids))
        if delta.embedding is not None:
            self._note_embedding()

    def end(self, reason: str) -> None:
        """Note that the request ended: stop, length, abort, error or refused."""
        metrics = self._metrics
        self.ended_at = time.perf_counter()
        self.finish_reason = reason
        metrics.ended[reason].add()
        metrics.open_sequences.add(-1)
        if self.first_token_at is None:
            return
        if self.decode_seconds is None:  # ended here, by a stop string or the client
            self.decode_seconds = self._last_token_at - self.first_token_at
        if reason in ("stop", "length"):
            metrics.observe_ended(self, e2e_seconds=self._last_token_at - self.arrived_at)

    def _note_start(self, delta: TokenDelta, queue_seconds: float) -> None:
        metrics = self._metrics
        self.queue_seconds = queue_seconds
        self.prefill_seconds = delta.prefill_seconds
        self.num_cached = delta.num_cached_tokens
        metrics.queue_time.observe(queue_seconds)
        if self._computes_prompt:
            metrics.cached_prompt_tokens.add(self.num_cached)
            metrics.computed_prompt_tokens.add(self.num_prompt_tokens - self.num_cached)

    def _note_embedding(self) -> None:
        """Note that a prompt's embedding has come, which has no token."""
        self.first_token_at = self._last_token_at = time.perf_counter()
        self._metrics.prompt_tokens.add(self.num_prompt_tokens)

    def _tick(self, num_tokens: int) -> None:
        """Note that so many tokens have just come; several at once share the time since."""
        now = time.perf_counter()
        metrics = self._metrics
        num_intervals = num_tokens
        if self.first_token_at is None:
            self.first_token_at = self._last_token_at = now
            metrics.time_to_first_token.observe(now - self.arrived_at)
            if self._computes_prompt:
                metrics.prompt_tokens.add(self.num_prompt_tokens)
            num_intervals = 0 if self._comes_whole else num_intervals - 1
        interval = (now - self._last_token_at) / num_tokens
        metrics.inter_token_latency.observe(interval, num_intervals)
        metrics.generation_tokens.add(num_tokens)
        self.num_generated += num_tokens
        self._last_token_at = now
