"""What an engine tells the gateways of itself, as often as engines push it."""

from collections.abc import Callable

from quire_engine.config import EngineConfig
from quire_engine.core.engine import EngineCore
from quire_engine.protocol.messages import CoreProfile
from quire_engine.protocol.state import (
    SCHEMA_VERSION,
    EngineState,
    PrefixChunkLog,
    SequenceCounts,
    report_pressure,
)
from quire_engine.server.state_stream import MIN_INTERVAL_SECONDS
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.engine import SimulatedEngine

PROFILE_SECONDS = 5.0
"""So often an engine tells what it learnt of lengths."""
QUIET_SECONDS = 1.0
"""So often an engine tells its state that only decodes."""
_NO_CHUNKS = PrefixChunkLog(first_number=0, next_number=0)

Hear = Callable[[EngineState], None]


class Teller:
    """Tells one engine's states to all gateways."""

    def __init__(self, agenda: Agenda) -> None:
        self.engine: SimulatedEngine | None = None
        self.state: EngineState | None = None
        """The last that was told."""
        self.is_silent = False
        """Nobody hears anything of it."""
        self._agenda = agenda
        self._hearers: list[Hear] = []
        self._sequence = 0
        self._told_at = -MIN_INTERVAL_SECONDS
        self._is_due = False
        self._profile: CoreProfile | None = None
        self._profiled_at = 0.0

    def follow(self, hear: Hear) -> None:
        """Tell somebody all states from now on."""
        self._hearers.append(hear)

    def begin(self, engine: SimulatedEngine) -> None:
        """Tell the states of this engine, the first one now."""
        self.engine = engine
        self._tell()

    def mark_changed(self, is_news: bool) -> None:
        """Tell it now, or when the last time is long enough ago; no news can wait longer.

        A real engine tells each of its steps that is a quarter of a second after the last it told.
        While the same requests only decode, once a second says as much: what they will hold is
        predicted.
        """
        if self._is_due or (not is_news and self._agenda.now < self._told_at + QUIET_SECONDS):
            return
        wait = self._told_at + MIN_INTERVAL_SECONDS - self._agenda.now
        self._is_due = True
        self._agenda.after(max(wait, 0.0), self._tell)

    def stop(self) -> None:
        """Tell nothing more."""
        self.engine = None

    def _tell(self) -> None:
        self._is_due = False
        self._told_at = self._agenda.now
        if self.engine is None or self.is_silent:
            return
        self.engine.settle()
        self._sequence += 1
        self.state = self._describe(self.engine)
        for hear in self._hearers:
            hear(self.state)

    def _describe(self, engine: SimulatedEngine) -> EngineState:
        now = self._agenda.now
        if self._profile is None or now - self._profiled_at >= PROFILE_SECONDS:
            self._profile, self._profiled_at = engine.core.profile(), now
        return describe_core(engine.core, engine.config, self._profile, self._sequence)


def describe_core(
    core: EngineCore,
    config: EngineConfig,
    profile: CoreProfile,
    sequence: int,
    prefix_chunks: PrefixChunkLog = _NO_CHUNKS,
) -> EngineState:
    """What the server of a core without a model would tell of it now."""
    stats, scheduler = core.stats(), config.scheduler
    return EngineState(
        schema_version=SCHEMA_VERSION,
        sequence=sequence,
        age_seconds=0.0,
        model_id="m",
        config_hash="c",
        is_ready=True,
        is_draining=False,
        tokens_per_block=core.facts.block_size,
        max_model_len=core.facts.max_model_len,
        blocks=stats.blocks,
        num_overshoot_blocks=stats.num_overshoot_blocks,
        sequences=SequenceCounts(
            running=stats.num_running,
            waiting=stats.num_waiting,
            slots=scheduler.max_num_seqs,
            by_priority=stats.by_priority,
        ),
        pressure=report_pressure(stats),
        thresholds=profile.thresholds,
        output_lengths=profile.lengths,
        step_time=profile.step_time,
        z=profile.z,
        gateways=stats.gateway_counters,
        prefix_chunks=prefix_chunks,
        num_filled_tokens=stats.num_filled_tokens,
        num_preemptions=stats.num_preemptions,
        num_recomputed_tokens=stats.num_recomputed_tokens,
        num_core_restarts=0,
        num_prompt_tokens_ahead=stats.num_prompt_tokens_ahead,
        max_step_tokens=scheduler.max_num_batched_tokens,
        has_prefix_cache=config.cache.enable_prefix_caching,
    )
