"""The core's statistics as metrics; counters go on where a core that died left off."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from quire_engine.core.totals import CoreTotals
from quire_engine.protocol import buckets
from quire_engine.protocol import metric_names as names
from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.protocol.messages import (
    CoreStats,
    ErrorDirection,
    ModelFacts,
    Pressure,
    Priority,
    StepKind,
)
from quire_engine.scheduler.admission import RefusalReason
from quire_engine.server.histogram import add_histogram

_PRIORITIES = tuple(priority.name.lower() for priority in Priority)
_DECISIONS = ("accepted", *RefusalReason, "cost_hint", "draining", "not_ready")
_COUNTERS = (
    (names.NUM_PREEMPTIONS, "Requests that lost their blocks or their row.", "num_preemptions"),
    (names.PREFIX_CACHE_QUERIES, "Prompt tokens looked up.", "num_prefix_queries"),
    (names.PREFIX_CACHE_HITS, "Prompt tokens found.", "num_prefix_hits"),
    (names.EVICTIONS, "Cached blocks evicted.", "num_evictions"),
    (names.BLOCKS_FREED, "Blocks given back by their last holder.", "num_freed_blocks"),
    (names.STEPS, "Steps made.", "num_steps"),
    (names.SCHEDULED_TOKENS, "Tokens computed.", "num_scheduled_tokens"),
    (names.RECOMPUTED_TOKENS, "Tokens computed again after a preemption.", "num_recomputed_tokens"),
    (names.GRAPH_HITS, "Decode steps that ran as a captured graph.", "num_graph_hits"),
    (names.GRAPH_MISSES, "Decode steps that had no graph.", "num_graph_misses"),
)  # fmt: skip


class CoreFigures(Protocol):
    """What the metrics need of a `CoreClient`."""

    @property
    def latest_stats(self) -> CoreStats | None:
        """The newest statistics; None while there is no core."""

    @property
    def facts(self) -> ModelFacts | None:
        """What the loaded model can take."""

    @property
    def num_core_deaths(self) -> int:
        """Core processes that died."""

    def totals(self) -> CoreTotals:
        """What all cores counted."""


class CoreCollector(Collector):
    """Reads what the client knows of the core; everything is there, as 0, before there is one."""

    def __init__(
        self,
        client: CoreFigures,
        model_name: str,
        refused: Callable[[], Mapping[str, float]],
    ) -> None:
        self._client = client
        self._model_name = model_name
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        """All families."""
        stats, totals = self._client.latest_stats, self._client.totals()
        for name, (text, value) in _gauges(stats, self._block_size()).items():
            yield self._gauges(name, text, "", {"": value})
        for name, text, field in _COUNTERS:
            yield self._counters(name, text, "", {"": totals.fields[field]})
        yield self._counters(
            names.CORE_RESTARTS, "Core processes that died.", "", {"": self._client.num_core_deaths}
        )
        yield from self._counters_by_label(totals)
        yield from self._gauges_by_label(stats)
        yield from self._histograms(totals)
        yield self._cache_config()

    def _counters_by_label(self, totals: CoreTotals) -> Iterator[Metric]:
        decisions = Counter[str](totals.decisions)
        decisions.update({reason: int(number) for reason, number in self._refused().items()})
        yield self._counters(
            names.ADMISSION_DECISIONS,
            "Requests let in, or refused by reason; one refused while it waits counts twice.",
            names.REASON_LABEL,
            {reason: decisions[reason] for reason in _DECISIONS},
        )
        yield self._counters(
            names.PREEMPTIONS,
            "Requests that lost their blocks or their row, by what was wanting.",
            names.CAUSE_LABEL,
            {
                "blocks": totals.fields["num_preemptions"] - totals.fields["num_displacements"],
                "priority": totals.fields["num_displacements"],
            },
        )

    def _gauges_by_label(self, stats: CoreStats | None) -> Iterator[Metric]:
        pressure = stats.pressure if stats else None
        yield self._gauges(
            names.PRESSURE,
            "How near each limit of admission is; 1 is the edge.",
            names.TERM_LABEL,
            {term: getattr(pressure, term, 0.0) for term in Pressure.__struct_fields__},
        )
        counts = stats.by_priority if stats else {}
        for name, field in ((names.RUNNING, "running"), (names.WAITING, "waiting")):
            values = {p: getattr(counts.get(p), field, 0) for p in _PRIORITIES}
            text = f"Requests {field}, by the class they came in."
            yield self._gauges(name, text, names.PRIORITY_LABEL, values)
        waiting = {"capacity": stats.num_waiting if stats else 0, "deferred": 0}
        states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        yield self._gauges(
            names.SLEEP_STATE,
            "Whether the engine sleeps, which it never does.",
            "sleep_state",
            states,
        )
        yield self._gauges(
            names.WAITING_BY_REASON, "Requests waiting, by why.", names.REASON_LABEL, waiting
        )

    def _histograms(self, totals: CoreTotals) -> Iterator[Metric]:
        yield self._histogram(
            names.ITERATION_TOKENS,
            "Tokens computed in a step.",
            buckets.STEP_TOKENS,
            {"": totals.histograms.get(names.ITERATION_TOKENS)},
        )
        for name, text, bounds, label, values in (
            (
                names.STEP_SECONDS,
                "Seconds of a step: of decodes alone, of prompts alone, or of both.",
                buckets.STEP_SECONDS,
                names.KIND_LABEL,
                StepKind,
            ),
            (
                names.RESERVATION_ERROR,
                "Blocks by which a request held more or less than was expected at its start.",
                buckets.RESERVATION_ERROR,
                names.DIRECTION_LABEL,
                ErrorDirection,
            ),
        ):
            counts = {v.value: totals.histograms.get(names.keyed(name, v)) for v in values}
            yield self._histogram(name, text, bounds, counts, label)

    def _cache_config(self) -> Metric:
        facts = self._client.facts
        values = {
            "block_size": str(facts.block_size if facts else 0),
            "num_gpu_blocks": str(facts.num_blocks if facts else 0),
        }
        labels = (names.MODEL_NAME_LABEL, *values)
        gauge = GaugeMetricFamily(names.CACHE_CONFIG, "The KV cache; always 1.", labels=labels)
        gauge.add_metric((self._model_name, *values.values()), 1)
        return gauge

    def _gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        return self._fill(GaugeMetricFamily(name, text, labels=_labels(label)), values)

    def _counters(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        return self._fill(CounterMetricFamily(name, text, labels=_labels(label)), values)

    def _fill(
        self, family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]
    ) -> Metric:
        for value_of_label, value in values.items():
            family.add_metric(self._label_values(value_of_label), value)
        return family

    def _histogram(
        self,
        name: str,
        text: str,
        bounds: tuple[float, ...],
        values: Mapping[str, HistogramCounts | None],
        label: str = "",
    ) -> Metric:
        family = HistogramMetricFamily(name, text, labels=_labels(label))
        for value_of_label, counts in values.items():
            counts = counts or HistogramCounts.empty(bounds)
            label_values = self._label_values(value_of_label)
            add_histogram(family, label_values, bounds, counts.counts, counts.sum)
        return family

    def _label_values(self, value_of_label: str) -> tuple[str, ...]:
        return (self._model_name, value_of_label) if value_of_label else (self._model_name,)

    def _block_size(self) -> int:
        return self._client.facts.block_size if self._client.facts else 0


def _labels(label: str) -> tuple[str, ...]:
    return (names.MODEL_NAME_LABEL, label) if label else (names.MODEL_NAME_LABEL,)


def _gauges(stats: CoreStats | None, block_size: int) -> dict[str, tuple[str, float]]:
    """Gauges by name; all are zero while there is no core."""
    blocks = stats.blocks if stats else None
    held = blocks.held if blocks else 0
    total = blocks.total if blocks else 0
    filled = stats.num_filled_tokens if stats else 0
    return {
        names.NUM_REQUESTS_RUNNING: ("Requests running.", stats.num_running if stats else 0),
        names.NUM_REQUESTS_WAITING: ("Requests waiting.", stats.num_waiting if stats else 0),
        names.KV_CACHE_USAGE: ("Share of KV blocks held, 1 is all.", held / total if total else 0),
        names.BLOCKS_CAPACITY: ("KV blocks.", total),
        names.BLOCKS_HELD: ("KV blocks held by requests.", held),
        names.BLOCKS_FREE: ("KV blocks free, cached ones included.", blocks.free if blocks else 0),
        names.BLOCKS_CACHED: ("Free KV blocks with a prefix.", blocks.cached if blocks else 0),
        names.BLOCKS_RESERVED: ("Peak of predicted blocks.", blocks.reserved if blocks else 0),
        names.BLOCKS_YIELDING: (
            "Reserved blocks that background requests give up to interactive ones.",
            blocks.yielding if blocks else 0,
        ),
        names.BLOCKS_QUEUED: ("Blocks that waiting requests need.", blocks.queued if blocks else 0),
        names.BLOCKS_OVERSHOOT: (
            "Blocks reserved beyond the admission ceiling.",
            stats.num_overshoot_blocks if stats else 0,
        ),
        names.UNFILLED_SLOTS: ("Slots of held blocks without a token.", held * block_size - filled),
    }
