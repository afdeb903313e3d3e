"""The admission policies that quire's own is held against; each replaces one part of it.

quire         peak of predicted occupancy, predicted first token, step budget
unbounded     (a) admit while the prompt fits, wait for ever: how engines queue by themselves
held_queue    (b) held blocks at most 0.9, waiting at most 30 s
held_0.8...   (c) held blocks at most so much, and everything else of quire's
full          (d) max_tokens reserved in full, and everything else of quire's
"""

from collections.abc import Callable
from math import inf

from msgspec.structs import replace

from quire_engine.core.engine import EngineCore
from quire_engine.protocol.cost import Occupancy, OccupancyCurve
from quire_engine.protocol.messages import Priority, Thresholds
from quire_engine.scheduler.admission import AdmissionControl, RoomPrediction
from quire_engine.scheduler.pace import Pace

Prepare = Callable[[EngineCore], None]


class HeldCeiling(AdmissionControl):
    """Looks at what is held now, and at the prompt; not ahead."""

    def _peak(self, curve: OccupancyCurve) -> float:
        return curve.mean[0]


class PromptCeiling(HeldCeiling):
    """Takes preempted requests back as soon as what they had fits."""

    def has_room_again(self, num_lacking_blocks: int) -> bool:
        return True


class FullReservation(AdmissionControl):
    """Reserves what a request may use at most; `sizes` are prompt and max_tokens in blocks."""

    def __init__(self, original: AdmissionControl, core: EngineCore) -> None:
        self.__dict__.update(original.__dict__)
        self._core = core

    def has_room(
        self, occupancy: Occupancy | OccupancyCurve, level: Priority, num_lacking_blocks: int
    ) -> bool:
        scheduler = self._core.scheduler
        sizes = [scheduler.blocks.num_blocks_for(r.max_length) for r in scheduler.running]
        own = max(scheduler.blocks.num_blocks_for(r.max_length) for r in scheduler.waiting)
        return sum(sizes) + own <= self._ceiling(level) * self._num_blocks

    def _predict_room(
        self, level: Priority, occupancy: Occupancy, num_lacking_blocks: int
    ) -> RoomPrediction:
        return RoomPrediction(0.0, is_there=True)


def quire(core: EngineCore) -> None:
    """Change nothing."""


def unbounded(core: EngineCore) -> None:
    """Admit while the prompt fits, wait for ever, fill steps up to the token budget."""
    _use(core, PromptCeiling, _limits(1.0, inf))
    _drop_objectives(core)


def held_queue(core: EngineCore) -> None:
    """Admit up to 0.9 of the blocks, wait at most 30 s."""
    _use(core, PromptCeiling, _limits(0.9, 30.0))
    _drop_objectives(core)


def held(ceiling: float) -> Prepare:
    """Admit up to a share of the blocks that are held, with quire's deadlines and step budget."""

    def prepare(core: EngineCore) -> None:
        limits = core.scheduler.admission.limits
        _use(core, HeldCeiling, replace(limits, admission=ceiling))

    return prepare


def full(core: EngineCore) -> None:
    """Reserve max_tokens."""
    core.scheduler.use(FullReservation(core.scheduler.admission, core))


POLICIES: dict[str, Prepare] = {
    "quire": quire,
    "unbounded": unbounded,
    "held_queue": held_queue,
    "held_0.8": held(0.8),
    "held_0.9": held(0.9),
    "held_0.95": held(0.95),
    "full": full,
}


def _limits(ceiling: float, max_queue_seconds: float) -> Thresholds:
    return Thresholds(
        admission=ceiling,
        background=ceiling,
        max_queue_seconds=max_queue_seconds,
        max_waiting_requests=1 << 30,
    )


def _use(core: EngineCore, kind: type[AdmissionControl], limits: Thresholds) -> None:
    scheduler = core.scheduler
    scheduler.use(
        kind(
            scheduler.ledger,
            scheduler.pace,
            replace(limits, max_waiting_requests=1 << 30),
            num_blocks=scheduler.blocks.pool.num_total,
            block_size=scheduler.blocks.block_size,
            max_num_seqs=scheduler.max_num_seqs,
        )
    )


def _drop_objectives(core: EngineCore) -> None:
    """No deadlines, and no bound of a step but its tokens."""
    scheduler = core.scheduler
    limits = scheduler.admission.limits
    scheduler.admission.limits = replace(
        limits, slo_time_to_first_token_seconds=None, slo_time_per_output_token_seconds=None
    )
    pace = Pace(
        scheduler.pace.model,
        step_seconds_budget=None,
        max_num_batched_tokens=scheduler.pace.max_num_batched_tokens,
    )
    scheduler.admission.pace = pace
