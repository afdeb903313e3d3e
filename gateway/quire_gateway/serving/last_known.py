"""What is known of engines that are not there: of those that were, or from the routing document.

A service at zero holds requests until it has an engine. How many of them one engine answers in time
is predicted with the last engine that there was.
"""

from dataclasses import dataclass

from quire_engine.profiles.output_length import SketchState
from quire_engine.protocol.messages import BlockCounts
from quire_engine.protocol.state import EngineState, PrefixChunkLog, SequenceCounts
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.figures import Figures, KnownSpeeds, OwnLoad, compute_figures
from quire_gateway.routing.document import LastEngine, RoutingDocument


@dataclass(frozen=True, slots=True)
class LastKnown:
    """One engine as it would be when it is full."""

    max_model_len: int
    output_lengths: SketchState | None
    figures: Figures

    def predict_wait(self, demand: Demand, queued_blocks: float) -> float:
        """Return the seconds that one engine takes from its start to this request's turn.

        As many as fit begin at once, and as many again each time that an answer of mean length
        takes. How long an engine takes to start is not in it.
        """
        figures, size = self.figures, demand.blocks(self.figures.block_size)
        room = min(figures.num_blocks, figures.num_requests * size)
        seconds = demand.num_output_tokens * figures.seconds_per_output_token
        return max(queued_blocks + size - room, 0.0) / room * seconds


class LastEngines:
    """Remembers the last engine that there was, or what the document says of it."""

    def __init__(self) -> None:
        self._state: EngineState | None = None
        self._document: RoutingDocument | None = None
        self._known: LastKnown | None = None
        """Made of either when it is asked for."""

    def update(self, document: RoutingDocument) -> None:
        """There is another document."""
        if self._document is None or document.last_engine != self._document.last_engine:
            self._known = None
        self._document = document

    def hear(self, state: EngineState) -> None:
        """An engine has told its state."""
        if state.is_ready and state.tokens_per_block > 0:
            self._state, self._known = state, None

    @property
    def known(self) -> LastKnown | None:
        """What is known of an engine that is not there."""
        if self._known is None:
            document = self._document
            if self._state is not None:
                self._known = last_of_state(self._state)
            elif document is not None and document.last_engine is not None:
                self._known = last_of_document(document, document.last_engine)
        return self._known


def last_of_state(state: EngineState) -> LastKnown:
    """Return what an engine's state says of another one like it."""
    total, slots = state.blocks.total, state.sequences.slots
    limits = state.thresholds
    room = int((limits.admission if limits else 1.0) * total)
    full = state.__replace__(
        blocks=BlockCounts(
            total=max(room, 1), held=room, free=0, cached=0, reserved=room, queued=0
        ),
        sequences=SequenceCounts(running=slots, waiting=0, slots=slots),
        num_filled_tokens=room * state.tokens_per_block,
        num_prompt_tokens_ahead=0,
    )
    figures = compute_figures(full, OwnLoad(), KnownSpeeds())
    return LastKnown(state.max_model_len, state.output_lengths, figures)


def last_of_document(document: RoutingDocument, last: LastEngine) -> LastKnown:
    """Return what a routing document says of the engines that there were."""
    total = last.num_blocks
    return last_of_state(
        EngineState(
            schema_version=1,
            sequence=0,
            age_seconds=0.0,
            model_id="",
            config_hash="",
            is_ready=False,
            is_draining=False,
            tokens_per_block=last.tokens_per_block,
            max_model_len=last.max_model_len,
            blocks=BlockCounts(total=total, held=0, free=total, cached=0, reserved=0, queued=0),
            num_overshoot_blocks=0,
            sequences=SequenceCounts(running=0, waiting=0, slots=last.slots),
            pressure=None,
            thresholds=document.thresholds,
            output_lengths=last.output_lengths,
            step_time=last.step_time,
            z=None,
            gateways={},
            prefix_chunks=PrefixChunkLog(first_number=0, next_number=0),
            num_filled_tokens=0,
            num_preemptions=0,
            num_recomputed_tokens=0,
            num_core_restarts=0,
            max_step_tokens=last.max_step_tokens,
        )
    )
