"""Counts of steps and of cores that came and went."""

from typing import Any

from quire_engine.core.step_stats import StepStats
from quire_engine.core.totals import TOTAL_FIELDS, CoreTotals
from quire_engine.execution.base import Batch, Chunks
from quire_engine.protocol import metric_names as names
from quire_engine.protocol.buckets import STEP_SECONDS, STEP_TOKENS
from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.protocol.messages import CoreStats, StepKind
from quire_engine.protocol.state import NO_BLOCKS


def step(num_decodes: int, num_prompt_tokens: int, num_steps: int = 1) -> Batch:
    return Batch(
        chunks=Chunks(num_decodes=num_decodes),
        total_tokens=num_decodes + num_prompt_tokens,
        num_steps=num_steps,
    )


def make_stats(**changes: Any) -> CoreStats:
    counts = dict.fromkeys(("num_running", "num_waiting", "num_filled_tokens", *TOTAL_FIELDS), 0)
    return CoreStats(blocks=NO_BLOCKS, **(counts | changes))


def test_steps_are_counted_by_what_they_compute() -> None:
    stats = StepStats()
    stats.count(step(3, 0), 0.003)
    stats.count(step(0, 100), 0.02)
    stats.count(step(3, 100), 0.03)
    stats.count(step(0, 0), 1.0)
    histograms = stats.histograms()

    assert sum(histograms[names.ITERATION_TOKENS].counts) == 3
    assert histograms[names.ITERATION_TOKENS].sum == 206
    for kind, seconds in (("decode", 0.003), ("prefill", 0.02), ("mixed", 0.03)):
        counts = histograms[names.keyed(names.STEP_SECONDS, kind)]
        assert sum(counts.counts) == 1
        assert counts.sum == seconds


def test_a_macro_step_counts_as_the_steps_it_stands_for() -> None:
    stats = StepStats()
    stats.count(step(2, 0, num_steps=5), 0.05)
    stats.count(step(2, 0, num_steps=5), None)
    histograms = stats.histograms()

    tokens = histograms[names.ITERATION_TOKENS]
    seconds = histograms[names.keyed(names.STEP_SECONDS, StepKind.DECODE)]
    assert (sum(tokens.counts), tokens.sum) == (10, 20)
    assert sum(seconds.counts) == 5
    assert seconds.counts[STEP_SECONDS.index(0.012)] == 5


def test_what_is_sent_does_not_change_afterwards() -> None:
    stats = StepStats()
    before = stats.histograms()
    stats.count(step(3, 0), 0.003)

    assert sum(before[names.ITERATION_TOKENS].counts) == 0


def test_counters_go_on_where_a_core_that_died_left_off() -> None:
    tokens = HistogramCounts.empty(STEP_TOKENS)
    tokens.observe(STEP_TOKENS, 7)
    stats = make_stats(
        num_steps=5,
        decisions={"accepted": 2},
        histograms={names.ITERATION_TOKENS: tokens},
    )
    totals = CoreTotals().plus(stats).plus(None).plus(stats)

    assert totals.fields["num_steps"] == 10
    assert totals.decisions == {"accepted": 4}
    assert totals.histograms[names.ITERATION_TOKENS].sum == 14
    assert totals.histograms[names.ITERATION_TOKENS].counts[STEP_TOKENS.index(8)] == 2
