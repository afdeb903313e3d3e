"""Puts `GET /state` together from what the server and the core know."""

from collections import Counter
from typing import Protocol

from quire_engine.config import EngineConfig
from quire_engine.core.client import CoreClient
from quire_engine.protocol.state import (
    NO_BLOCKS,
    SCHEMA_VERSION,
    EngineState,
    Loading,
    PrefixChunkLog,
    SequenceCounts,
    report_pressure,
)
from quire_engine.server.arrivals import GatewayArrivals
from quire_engine.server.state_feed import StateFeed


class Reporter(Protocol):
    """What a state needs of the service."""

    config: EngineConfig
    config_hash: str
    model_name: str
    model_revision: str | None
    arrivals: GatewayArrivals
    feed: StateFeed

    @property
    def is_ready(self) -> bool:
        """Whether requests should be sent here."""

    @property
    def is_draining(self) -> bool:
        """Whether it is being taken out of service."""

    @property
    def loading(self) -> Loading | None:
        """How far the model has come."""

    @property
    def age_seconds(self) -> float:
        """How long ago the core was last heard."""


def describe_state(
    service: Reporter, client: CoreClient | None, *, chunks_from: int = 0
) -> EngineState:
    """The state as of the core's latest statistics; without a core all counts are zero."""
    facts = client.facts if client else None
    stats = client.latest_stats if client else None
    profile = client.latest_profile if client else None
    totals = client.totals().fields if client else Counter()
    return EngineState(
        schema_version=SCHEMA_VERSION,
        sequence=service.feed.sequence,
        age_seconds=service.age_seconds,
        model_id=service.model_name,
        model_revision=service.model_revision,
        config_hash=service.config_hash,
        is_ready=service.is_ready,
        is_draining=service.is_draining,
        tokens_per_block=facts.block_size if facts else 0,
        max_model_len=facts.max_model_len if facts else 0,
        blocks=stats.blocks if stats else NO_BLOCKS,
        num_overshoot_blocks=stats.num_overshoot_blocks if stats else 0,
        sequences=SequenceCounts(
            running=stats.num_running if stats else 0,
            waiting=stats.num_waiting if stats else 0,
            slots=service.config.scheduler.max_num_seqs,
            by_priority=stats.by_priority if stats else {},
        ),
        pressure=report_pressure(stats),
        thresholds=profile.thresholds if profile else None,
        output_lengths=profile.lengths if profile else None,
        step_time=profile.step_time if profile else None,
        calibration=profile.calibration if profile else None,
        z=profile.z if profile else None,
        gateways=service.arrivals.included(stats.gateway_counters) if stats else {},
        prefix_chunks=_chunk_log(client, chunks_from),
        num_filled_tokens=stats.num_filled_tokens if stats else 0,
        num_prompt_tokens_ahead=stats.num_prompt_tokens_ahead if stats else 0,
        max_step_tokens=service.config.scheduler.max_num_batched_tokens,
        num_preemptions=totals["num_preemptions"],
        num_recomputed_tokens=totals["num_recomputed_tokens"],
        num_scheduled_tokens=totals["num_scheduled_tokens"],
        num_core_restarts=client.num_core_deaths if client else 0,
        num_audits=stats.num_audits if stats else 0,
        loading=service.loading,
        has_prefix_cache=service.config.cache.enable_prefix_caching,
    )


def _chunk_log(client: CoreClient | None, number: int) -> PrefixChunkLog:
    if client is None:
        return PrefixChunkLog(first_number=0, next_number=0)
    first, events = client.prefix_ring.since(number)
    return PrefixChunkLog(
        first_number=first, next_number=client.prefix_ring.next_number, events=events
    )
