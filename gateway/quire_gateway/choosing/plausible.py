"""What an engine says of itself, looked at before any of it is believed.

    refused     no engine can be so: counts below 0 or beyond any machine, one that is ready and has
                no block or no seat, blocks that do not add up, ceilings that are no shares. Its
                stream of states ends there, so it gets nothing
    corrected   a part is larger than its whole: it is taken for as large

Models of step times and of lengths check themselves when they are read.
"""

from collections.abc import Iterator
from math import inf

from quire_engine.protocol.messages import BlockCounts, Thresholds
from quire_engine.protocol.state import EngineState

_MOST = 1 << 30
"""Of blocks, of sequences, of tokens of a block or a request: beyond any machine."""
_MOST_TOKENS = 1 << 45
"""Of all requests together."""
_MOST_TOKENS_PER_BLOCK = 1 << 16
_MOST_GATEWAYS = 1024
"""Whose counters it tells; engines of ours remember 64."""
_MOST_NUMBER = (1 << 63) - 1
"""Of what is only ever counted up."""


class ImplausibleStateError(ValueError):
    """The state cannot be an engine's; the message names the figure."""


def check_state(state: EngineState) -> EngineState:
    """Return the state to believe: the same object where nothing has to be corrected.

    Raises
    ------
    ImplausibleStateError
        It is refused.
    """
    for most, figures in (
        (_MOST, _counts(state)),
        (_MOST_TOKENS, _tokens(state)),
        (_MOST_TOKENS_PER_BLOCK, [("tokens_per_block", state.tokens_per_block)]),
        (_MOST_NUMBER, _numbers(state)),
    ):
        for name, value in figures:
            if not 0 <= value <= most:
                raise ImplausibleStateError(f"{name} is {value}, not from 0 to {most}")
    if len(state.gateways) > _MOST_GATEWAYS:
        raise ImplausibleStateError(f"it tells of {len(state.gateways)} gateways")
    if state.is_ready:
        _check_ready(state)
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


def _numbers(state: EngineState) -> Iterator[tuple[str, int]]:
    log = state.prefix_chunks
    yield "sequence", state.sequence
    yield "prefix_chunks.first_number", log.first_number
    yield "prefix_chunks.next_number", log.next_number
    yield "num_overshoot_blocks", state.num_overshoot_blocks
    yield "num_preemptions", state.num_preemptions
    yield "num_recomputed_tokens", state.num_recomputed_tokens
    yield "num_core_restarts", state.num_core_restarts
    yield "num_audits", state.num_audits
    yield "num_scheduled_tokens", state.num_scheduled_tokens or 0
    for counter in state.gateways.values():
        yield "a gateway's counter", counter


def _check_ready(state: EngineState) -> None:
    """While its model is on the way, an engine has nothing; then it has something of each."""
    for name, value in (
        ("tokens_per_block", state.tokens_per_block),
        ("max_model_len", state.max_model_len),
        ("blocks.total", state.blocks.total),
        ("sequences.slots", state.sequences.slots),
    ):
        if value < 1:
            raise ImplausibleStateError(f"it is ready, and {name} is {value}")


def _check_thresholds(limits: Thresholds) -> None:
    for name in ("admission", "background"):
        share = getattr(limits, name)
        if not 0.0 < share <= 1.0:
            raise ImplausibleStateError(f"thresholds.{name} is {share}, not a share up to 1")
    for name in ("slo_time_to_first_token_seconds", "slo_time_per_output_token_seconds"):
        seconds = getattr(limits, name)
        if seconds is not None and not seconds > 0.0:
            raise ImplausibleStateError(f"thresholds.{name} is {seconds}, not above 0")
    for name in ("max_queue_seconds", "max_waiting_requests"):
        most = getattr(limits, name)
        if not 0 <= most < inf:
            raise ImplausibleStateError(f"thresholds.{name} is {most}, not 0 or above")


def _correct(blocks: BlockCounts) -> BlockCounts:
    reserved = max(blocks.reserved, blocks.held)
    cached, yielding = min(blocks.cached, blocks.free), min(blocks.yielding, reserved)
    if (reserved, cached, yielding) == (blocks.reserved, blocks.cached, blocks.yielding):
        return blocks
    return blocks.__replace__(reserved=reserved, cached=cached, yielding=yielding)
