"""What the scheduler counts, from its start on."""

from collections import Counter
from dataclasses import dataclass, field

from quire_engine.protocol.buckets import RESERVATION_ERROR
from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.protocol.messages import ErrorDirection
from quire_engine.scheduler.admission import Refusal
from quire_engine.scheduler.request import Request


@dataclass(slots=True)
class SchedulerCounters:
    """Totals that only grow."""

    num_preemptions: int = 0
    num_displacements: int = 0
    """The preemptions that made room for interactive requests."""
    num_recomputed_tokens: int = 0
    """Tokens whose KV was lost by preemption and not found again in the prefix cache."""
    num_prefix_queries: int = 0
    num_prefix_hits: int = 0
    num_scheduled_tokens: int = 0
    num_decode_tokens: int = 0
    """Of the scheduled ones, those of decodes; the others are prompts'."""

    decisions: Counter[str] = field(default_factory=Counter)
    """Admission decisions: "accepted", or the reason of the refusal."""
    reservation_errors: dict[ErrorDirection, HistogramCounts] = field(
        default_factory=lambda: {
            way: HistogramCounts.empty(RESERVATION_ERROR) for way in ErrorDirection
        }
    )
    """Blocks between those held at a request's end and those expected at its start."""

    def count_decision(self, refusal: Refusal | None) -> None:
        """Count a request that was let in to wait, or refused."""
        self.decisions[refusal.reason if refusal else "accepted"] += 1

    def count_lost(self, request: Request) -> None:
        """Count a preempted request's computed tokens as lost, until a start finds some again."""
        self.num_recomputed_tokens += request.num_computed_tokens
        request.num_lost_tokens = request.num_computed_tokens
        request.num_computed_tokens = 0

    def count_end(self, request: Request) -> None:
        """Compare what a request that was not ended early holds with what was expected."""
        error = request.num_expected_blocks - len(request.table.blocks)
        way = ErrorDirection.UNDER if error < 0 else ErrorDirection.OVER
        self.reservation_errors[way].observe(RESERVATION_ERROR, abs(error))

    def count_start(self, request: Request, num_found: int) -> None:
        """Count what the prefix cache gave a request that starts, or comes back."""
        if request.num_preemptions:
            self.num_recomputed_tokens -= min(num_found, request.num_lost_tokens)
            request.num_lost_tokens = 0
            return
        request.num_cached_tokens = num_found
        self.num_prefix_queries += request.num_prompt_tokens
        self.num_prefix_hits += num_found
