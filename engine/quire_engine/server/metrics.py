"""Prometheus metrics of one API server: requests, counted here as they pass.

With several API processes each counts its own, and each exports the sums: see `count_board`. What
the core counts is read from its latest statistics at the moment of a scrape
(`quire_engine.server.core_metrics`), so that gauges cannot stay behind.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from quire_engine.protocol import buckets
from quire_engine.protocol import metric_names as names
from quire_engine.server.core_metrics import CoreCollector, CoreFigures
from quire_engine.server.count_board import CountBoard, Gauge
from quire_engine.server.histogram import (
    CounterFamily,
    HistogramFamily,
    LoopCounter,
    LoopHistogram,
)

if TYPE_CHECKING:
    from quire_engine.server.request_clock import RequestClock

FINISHED_REASONS = ("stop", "length", "abort", "error", "refused")
_HTTP_LABELS = ("handler", "method", "status")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_REFUSED = "refused"
_COMPUTED_PROMPT_TOKENS = "computed_prompt_tokens"
"""Names on the board of what is exported as a part of others."""
_UNCOUNTED_ROUTES = frozenset({"/health", "/healthz", "/metrics", "/readyz"})
"""Probes would drown the rest; vLLM leaves them out as well."""


@dataclass(frozen=True, slots=True)
class GrammarMetrics:
    """What is counted of grammars."""

    seconds: LoopHistogram
    hits: LoopCounter
    failures: LoopCounter


class ServerMetrics:
    """Counters and histograms of requests; one instance per server, with its own registry."""

    def __init__(self, model_name: str, board: CountBoard | None = None) -> None:
        self.board = board or CountBoard.alone()
        self._model_name = model_name
        self._labels = {names.MODEL_NAME_LABEL: model_name}
        self._registry = CollectorRegistry()
        self.prompt_tokens = self._counter(names.PROMPT_TOKENS, "Prompt tokens processed.")
        self.generation_tokens = self._counter(names.GENERATION_TOKENS, "Tokens generated.")
        cached = self._family(
            names.PROMPT_TOKENS_CACHED, "Prompt tokens that the prefix cache had."
        )
        self.cached_prompt_tokens = cached.labels()
        computed = CounterFamily(self.board, _COMPUTED_PROMPT_TOKENS, "Those that it had not.", {})
        self.computed_prompt_tokens = computed.labels()
        self.time_to_first_token = self._histogram(
            names.TIME_TO_FIRST_TOKEN,
            "From arrival to the first token.",
            buckets.TIME_TO_FIRST_TOKEN,
        )
        self.inter_token_latency = self._histogram(
            names.INTER_TOKEN_LATENCY, "From one token to the next.", buckets.INTER_TOKEN_LATENCY
        )
        self.e2e_latency = self._latency(
            names.E2E_REQUEST_LATENCY, "From arrival to the last token."
        )
        self.queue_time = self._latency(names.QUEUE_TIME, "From arrival to the first start.")
        self.prefill_time = self._latency(
            names.PREFILL_TIME, "From the first start to the first token."
        )
        self.decode_time = self._latency(names.DECODE_TIME, "From the first token to the last.")
        self.inference_time = self._latency(
            names.INFERENCE_TIME, "From the first start to the last token."
        )
        self.time_per_output_token = self._histogram(
            names.TIME_PER_OUTPUT_TOKEN,
            "A request's mean time per token after the first.",
            buckets.INTER_TOKEN_LATENCY,
        )
        self.request_prompt_tokens = self._sizes(
            names.REQUEST_PROMPT_TOKENS, "Prompt tokens of a request."
        )
        self.request_computed_tokens = self._sizes(
            names.COMPUTED_PROMPT_TOKENS, "Those of them that the prefix cache had not."
        )
        self.request_generation_tokens = self._sizes(
            names.REQUEST_GENERATION_TOKENS, "Tokens generated for it."
        )
        self.max_generation_tokens = self._sizes(
            names.MAX_GENERATION_TOKENS, "Most tokens generated for one of its answers."
        )
        self.params_max_tokens = self._sizes(
            names.PARAMS_MAX_TOKENS, "Most tokens that it allowed."
        )
        ended = self._family(
            names.REQUEST_SUCCESS, "Requests that ended, by reason.", names.FINISHED_REASON_LABEL
        )
        self.ended = {reason: ended.labels(reason) for reason in FINISHED_REASONS}
        """A counter for each reason why requests end."""
        self._share_counters(cached, computed, ended)
        self.grammars = GrammarMetrics(
            self._histogram(
                names.GRAMMAR_SECONDS,
                "CPU time to compile and try a new grammar.",
                buckets.GRAMMAR_SECONDS,
            ),
            self._counter(names.GRAMMAR_HITS, "Requests whose grammar was known already."),
            self._counter(names.GRAMMAR_FAILURES, "New grammars that were refused."),
        )
        self._worker_deaths = self._counter(
            names.API_WORKER_RESTARTS, "API workers that died and were started again."
        )
        self.open_sequences = LoopCounter(self.board.gauge(Gauge.SEQUENCES))
        """Sequences that have begun and not ended: a worker that dies had these."""
        self.requests_in_flight = LoopCounter(self.board.gauge(Gauge.REQUESTS))
        self._refused = CounterFamily(self.board, _REFUSED, "Without asking the core.", {})
        self._http_requests = CounterFamily(
            self.board, names.HTTP_REQUESTS, "HTTP requests, without probes.", {}, *_HTTP_LABELS
        )
        self._http_seconds = HistogramFamily(
            self.board,
            names.HTTP_SECONDS,
            "From an HTTP request's head to the end of its answer.",
            buckets.HTTP_SECONDS,
            {},
            *_HTTP_LABELS[:2],
        )
        self._registry.register(self._http_requests)
        self._registry.register(self._http_seconds)
        # whichever worker answers, the same process is told of: the one that started them
        pid = os.getppid if self.board.is_shared else os.getpid
        ProcessCollector(registry=self._registry, pid=pid)

    def watch_core(self, client: CoreFigures) -> None:
        """Export the core's statistics too."""
        self._registry.register(CoreCollector(client, self._model_name, self.refused))

    def refuse(self, reason: str) -> None:
        """Count a request that is refused without asking the core."""
        self._refused.labels(reason).add()

    def refused(self) -> dict[str, float]:
        """How many those are, by reason."""
        return {reason: number for (reason,), number in self._refused.totals().items()}

    def settle_dead(self) -> None:
        """The worker of this board's segment is gone: what it had begun was aborted."""
        (num_open,) = self.board.gauge(Gauge.SEQUENCES)
        self.ended["abort"].add(num_open)
        self._worker_deaths.add()
        self.board.clear_gauges()

    def families(self) -> Iterator[Metric]:
        """All metrics, for whoever documents them."""
        return iter(self._registry.collect())

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)

    def count_http(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request; all labels are of a bounded set.

        Parameters
        ----------
        route
            The route's pattern, not the path that came.
        status
            0 if the client left before the answer: its fault, as 4xx are.
        """
        if route in _UNCOUNTED_ROUTES:
            return
        method = method if method in _METHODS else "other"
        self._http_requests.labels(route, method, f"{status // 100 or 4}xx").add()
        self._http_seconds.labels(route, method).observe(seconds)

    def observe_ended(self, clock: "RequestClock", e2e_seconds: float) -> None:
        """Count the times and sizes of a sequence that ended as its client wanted."""
        num_generated = clock.num_generated
        self.e2e_latency.observe(e2e_seconds)
        self.request_prompt_tokens.observe(clock.num_prompt_tokens)
        self.request_computed_tokens.observe(clock.num_prompt_tokens - clock.num_cached)
        self.request_generation_tokens.observe(num_generated)
        self.max_generation_tokens.observe(num_generated)
        self.params_max_tokens.observe(clock.sampling.max_tokens)
        prefill, decode = clock.prefill_seconds or 0.0, clock.decode_seconds or 0.0
        self.prefill_time.observe(prefill)
        self.decode_time.observe(decode)
        self.inference_time.observe(prefill + decode)
        self.time_per_output_token.observe(decode / max(num_generated - 1, 1))

    def _share_counters(
        self, cached: CounterFamily, computed: CounterFamily, ended: CounterFamily
    ) -> None:
        """Export counters that are there already under the further names that they have."""
        sources = self._family(
            names.PROMPT_TOKENS_BY_SOURCE, "Prompt tokens, by where they came from.", "source"
        )
        sources.share(computed, (), "local_compute")
        sources.share(cached, (), "local_cache_hit")
        tiers = self._family(
            names.CACHED_TOKENS_BY_SOURCE,
            "Prompt tokens that a cache had, by the memory that it is in.",
            "source",
        )
        tiers.share(cached, (), "device")
        aborted = self._family(names.REQUESTS_ABORTED, "Requests whose client left.")
        aborted.share(ended, ("abort",))

    def _family(self, name: str, text: str, *label_names: str) -> CounterFamily:
        family = CounterFamily(self.board, name, text, self._labels, *label_names)
        self._registry.register(family)
        return family

    def _counter(self, name: str, text: str) -> LoopCounter:
        return self._family(name, text).labels()

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> LoopHistogram:
        family = HistogramFamily(self.board, name, text, bounds, self._labels)
        self._registry.register(family)
        return family.labels()

    def _latency(self, name: str, text: str) -> LoopHistogram:
        return self._histogram(name, text, buckets.REQUEST_LATENCY)

    def _sizes(self, name: str, text: str) -> LoopHistogram:
        return self._histogram(name, text, buckets.REQUEST_TOKENS)
