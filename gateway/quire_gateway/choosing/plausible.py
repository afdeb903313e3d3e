"""What an engine says of itself, looked at before any of it is believed.

    refused     no engine can be so: counts below 0 or beyond any machine, blocks that do not add
                up, ceilings that are no shares. Its stream of states ends there, so it gets nothing
    corrected   a part is larger than its whole: it is taken for as large

Models of step times and of lengths check themselves when they are read.
"""

from collections.abc import Iterator

from quire_engine.protocol.messages import BlockCounts, Thresholds
from quire_engine.protocol.state import EngineState

_MOST = 1 << 30
"""Of blocks, of sequences, of tokens of a block or a request: beyond any machine."""
_MOST_TOKENS = 1 << 45
"""Of all requests together."""


class ImplausibleStateError(ValueError):
    """The state cannot be an engine's; the message names the figure."""


def check_state(state: EngineState) -> EngineState:
    """Return the state to believe: the same object where nothing has to be corrected.

    Raises
    ------
    ImplausibleStateError
        It is refused.
    """
    for most, figures in ((_MOST, _counts(state)), (_MOST_TOKENS, _tokens(state))):
        for name, value in figures:
            if not 0 <= value <= most:
                raise ImplausibleStateError(f"{name} is {value}, not from 0 to {most}")
    blocks = state.blocks
    if blocks.held + blocks.free != blocks.total:
        raise ImplausibleStateError(
            f"blocks held ({blocks.held}) and free ({blocks.free}) are not all ({blocks.total})"
        )
    if state.thresholds is not None:
        _check_thresholds(state.thresholds)
    possible = _correct(blocks)
    return state if possible is blocks else state.__replace__(blocks=possible)


def _counts(state: EngineState) -> Iterator[tuple[str, int]]:
    blocks, sequences = state.blocks, state.sequences
    yield "tokens_per_block", state.tokens_per_block
    yield "max_model_len", state.max_model_len
    yield "blocks.total", blocks.total
    yield "blocks.held", blocks.held
    yield "blocks.free", blocks.free
    yield "blocks.cached", blocks.cached
    yield "blocks.reserved", blocks.reserved
    yield "blocks.queued", blocks.queued
    yield "blocks.yielding", blocks.yielding
    yield "sequences.running", sequences.running
    yield "sequences.waiting", sequences.waiting
    yield "sequences.slots", sequences.slots
    yield "max_step_tokens", state.max_step_tokens or 0


def _tokens(state: EngineState) -> Iterator[tuple[str, int]]:
    yield "num_filled_tokens", state.num_filled_tokens
    yield "num_prompt_tokens_ahead", state.num_prompt_tokens_ahead or 0


def _check_thresholds(limits: Thresholds) -> None:
    for name in ("admission", "background"):
        share = getattr(limits, name)
        if not 0.0 < share <= 1.0:
            raise ImplausibleStateError(f"thresholds.{name} is {share}, not a share up to 1")
    for name in ("slo_time_to_first_token_seconds", "slo_time_per_output_token_seconds"):
        seconds = getattr(limits, name)
        if seconds is not None and not seconds > 0.0:
            raise ImplausibleStateError(f"thresholds.{name} is {seconds}, not above 0")


def _correct(blocks: BlockCounts) -> BlockCounts:
    reserved = max(blocks.reserved, blocks.held)
    cached, yielding = min(blocks.cached, blocks.free), min(blocks.yielding, reserved)
    if (reserved, cached, yielding) == (blocks.reserved, blocks.cached, blocks.yielding):
        return blocks
    return blocks.__replace__(reserved=reserved, cached=cached, yielding=yielding)
