"""What `GET /state` answers: the engine's own account, for gateways, operators and people."""

from typing import Literal

import msgspec

from quire_engine.profiles.engine_profile import CalibrationReport
from quire_engine.profiles.output_length import SketchState
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.messages import (
    BlockCounts,
    CoreStats,
    Pressure,
    SequencesByPriority,
    Thresholds,
)

SCHEMA_VERSION = 1
"""Raised when a field changes its meaning; new fields do not raise it."""

NO_BLOCKS = BlockCounts(total=0, held=0, free=0, cached=0, reserved=0, queued=0)


class SequenceCounts(msgspec.Struct, kw_only=True, frozen=True):
    """Requests in the engine."""

    running: int
    waiting: int
    slots: int
    """Most requests that run at the same time."""
    by_priority: dict[str, SequencesByPriority] = {}
    """The same, for "interactive" and "background"."""


class PressureReport(msgspec.Struct, kw_only=True, frozen=True):
    """How near the engine is to refusing: 1 is the edge."""

    value: float
    """The largest term."""
    binding: str
    """Which term that is."""
    terms: Pressure


class PrefixChunkLog(msgspec.Struct, kw_only=True, frozen=True):
    """Prefix-chunk events, in order; in a stream only those since the event before.

    A reader that has all events below `first_number` goes on; else some are lost to it, and what
    it believes of this engine's cache may be wrong: it should forget all.
    """

    first_number: int
    next_number: int
    """first_number + the number of events: where the next log goes on."""
    events: list[tuple[Literal["inserted", "evicted"], str]] = []


class Loading(msgspec.Struct, kw_only=True, frozen=True):
    """How far the model has come on its way into the engine."""

    phase: Literal["fetching", "loading"]
    """Fetching: its files are found, downloaded and checked. Loading: the core reads them, and
    measures how long steps take."""
    stage: str
    """What of that is being done, in words for people."""
    fraction: float
    """Of the stage, in [0, 1]."""


class EngineState(msgspec.Struct, kw_only=True, frozen=True):
    """One engine as of its latest statistics.

    While the core process is loading or restarting, all counts are zero and `is_ready` is false.
    """

    schema_version: int
    sequence: int
    """Rises with every change of the state; begins anew with the process."""
    age_seconds: float
    """How long ago the core was last heard; about a second when it is idle."""
    model_id: str
    config_hash: str
    """Equal for engines that were started with equal settings."""
    is_ready: bool
    is_draining: bool
    tokens_per_block: int
    max_model_len: int
    blocks: BlockCounts
    num_overshoot_blocks: int
    """Blocks reserved beyond the admission ceiling: predictions were too low."""
    sequences: SequenceCounts
    pressure: PressureReport | None
    thresholds: Thresholds | None
    """In force now."""
    output_lengths: SketchState | None
    """Lengths of outputs seen so far."""
    step_time: StepTimeModel | None
    """Predicts steps, with its error and the range that it was made from."""
    z: float | None
    """Standard deviations that reservations keep from the predicted mean."""
    gateways: dict[str, int]
    """The highest request counter of each gateway that the counts above include."""
    prefix_chunks: PrefixChunkLog
    num_filled_tokens: int
    """Tokens whose KV is in held blocks."""
    num_preemptions: int
    num_recomputed_tokens: int
    num_core_restarts: int
    num_audits: int = 0
    """Checks of all accounts that the core made while idle, since it started."""
    num_prompt_tokens_ahead: int | None = None
    """Prompt tokens that are still to be computed, of requests that run or wait."""
    max_step_tokens: int | None = None
    """Most tokens of a step; its seconds are bounded by the SLO in `thresholds`, if there is one.
    """
    model_revision: str | None = None
    """The commit that the model's files are of, where it comes from a hub."""
    calibration: CalibrationReport | None = None
    """How `step_time` began: what was measured before the engine was ready."""
    num_scheduled_tokens: int | None = None
    """Tokens computed since the start, those of prompts too."""
    loading: Loading | None = None
    """As long as the model is not loaded, once something is known of it. Progress alone does not
    raise `sequence`."""
    has_prefix_cache: bool = True
    """Whether prompts find there what others that begin alike have computed."""


class Heartbeat(msgspec.Struct, kw_only=True, frozen=True):
    """Nothing has changed since the state with this sequence."""

    sequence: int
    age_seconds: float


def report_pressure(stats: CoreStats | None) -> PressureReport | None:
    """The pressure with its binding term; None before the first statistics."""
    if stats is None or stats.pressure is None:
        return None
    terms = stats.pressure
    return PressureReport(value=terms.value, binding=terms.binding, terms=terms)


def write_compact(stats: CoreStats | None, sequence: int) -> str:
    """The state in one header: `held=..;reserved=..;total=..;running=..;waiting=..`, and so on.

    Readers must accept keys that they do not know. All figures are zero before the model is
    loaded.
    """
    blocks = stats.blocks if stats else NO_BLOCKS
    pressure = stats.pressure.value if stats and stats.pressure else 0.0
    return (
        f"held={blocks.held};reserved={blocks.reserved};total={blocks.total}"
        f";running={stats.num_running if stats else 0};waiting={stats.num_waiting if stats else 0}"
        f";pressure={pressure:.3f};seq={sequence}"
    )
