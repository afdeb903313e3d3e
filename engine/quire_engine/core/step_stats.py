"""How long steps took and how much they computed: histograms that travel with the statistics."""

from quire_engine.execution.base import Batch
from quire_engine.protocol import metric_names as names
from quire_engine.protocol.buckets import STEP_SECONDS, STEP_TOKENS
from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.protocol.messages import StepKind


class StepStats:
    """Counts steps since the core's start."""

    def __init__(self) -> None:
        self._tokens = HistogramCounts.empty(STEP_TOKENS)
        self._seconds = {kind: HistogramCounts.empty(STEP_SECONDS) for kind in StepKind}

    def count(self, batch: Batch, seconds: float | None) -> None:
        """Count a step that computed something.

        Parameters
        ----------
        seconds
            How long it took, planning and all; None if nobody measured it.
        """
        if not batch.total_tokens:
            return
        self._tokens.observe(STEP_TOKENS, batch.total_tokens, batch.num_steps)
        if seconds is not None:
            each = seconds / batch.num_steps
            self._seconds[_kind_of(batch)].observe(STEP_SECONDS, each, batch.num_steps)

    def histograms(self) -> dict[str, HistogramCounts]:
        """Copies by the names that `CoreStats.histograms` has them under."""
        seconds = {
            names.keyed(names.STEP_SECONDS, kind): counts.copy()
            for kind, counts in self._seconds.items()
        }
        return {names.ITERATION_TOKENS: self._tokens.copy()} | seconds


def _kind_of(batch: Batch) -> StepKind:
    num_decodes = batch.chunks.num_decodes
    if num_decodes == batch.total_tokens:
        return StepKind.DECODE
    return StepKind.MIXED if num_decodes else StepKind.PREFILL
