"""What cores counted, summed over those that died: counters must not fall when one starts anew."""

from collections import Counter

import msgspec

from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.protocol.messages import CoreStats

TOTAL_FIELDS = (
    "num_displacements",
    "num_evictions",
    "num_freed_blocks",
    "num_graph_hits",
    "num_graph_misses",
    "num_preemptions",
    "num_prefix_hits",
    "num_prefix_queries",
    "num_recomputed_tokens",
    "num_scheduled_tokens",
    "num_steps",
)
"""Fields of `CoreStats` that only grow while a core process lives."""


class CoreTotals(msgspec.Struct, kw_only=True, frozen=True):
    """Counts of all cores up to some moment."""

    fields: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(TOTAL_FIELDS, 0))
    """`TOTAL_FIELDS` by name."""
    decisions: dict[str, int] = {}
    """Admission decisions by reason."""
    histograms: dict[str, HistogramCounts] = {}

    def plus(self, stats: CoreStats | None) -> "CoreTotals":
        """These counts and a core's."""
        if stats is None:
            return self
        histograms = dict(self.histograms)
        for name, counts in stats.histograms.items():
            before = histograms.get(name)
            histograms[name] = counts if before is None else before.plus(counts)
        return CoreTotals(
            fields={name: self.fields[name] + getattr(stats, name) for name in TOTAL_FIELDS},
            decisions=Counter(self.decisions) + Counter(stats.decisions),
            histograms=histograms,
        )
