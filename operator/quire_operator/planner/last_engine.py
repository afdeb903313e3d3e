"""What an engine of a service said last, for gateways while there is none.

By it a gateway lets as many wait for a first engine as that will answer in time. It is written when
the last engine has gone, and not while there are engines, which say it themselves; beside it, as an
annotation, so that an operator that starts meanwhile leaves it as it is.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from quire_engine.profiles.output_length import SketchState
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.state import EngineState
from quire_operator.planner.names import LAST_ENGINE_ANNOTATION

_MOST = 1 << 30
"""Of any count: a user's own image may say what it likes, and a gateway would not read it."""
_MOST_BYTES = 16 << 10
"""All keys, and this, have to have room in one object."""


class LastEngine(Struct, frozen=True, kw_only=True):
    """One engine, as the routing document has it; all counts are above 0."""

    tokens_per_block: int
    num_blocks: int
    max_model_len: int
    slots: int
    """Sequences that it ran at once."""
    max_step_tokens: int | None = None
    step_time: StepTimeModel | None = None
    output_lengths: SketchState | None = None


class _Kept(Struct, frozen=True, kw_only=True):
    """The annotation."""

    source: str
    """Of the model: another one's engines are other ones."""
    engine: LastEngine


def last_engine_from(state: EngineState) -> LastEngine | None:
    """Take what is to be known of an engine that was; None of one that says what cannot be."""
    counts = (
        state.tokens_per_block,
        state.blocks.total,
        state.max_model_len,
        state.sequences.slots,
        1 if state.max_step_tokens is None else state.max_step_tokens,
    )
    if not all(1 <= count <= _MOST for count in counts):
        return None
    engine = LastEngine(
        tokens_per_block=state.tokens_per_block,
        num_blocks=state.blocks.total,
        max_model_len=state.max_model_len,
        slots=state.sequences.slots,
        max_step_tokens=state.max_step_tokens,
        step_time=state.step_time,
        output_lengths=state.output_lengths,
    )
    if len(msgspec.json.encode(engine)) > _MOST_BYTES:
        return msgspec.structs.replace(engine, step_time=None, output_lengths=None)
    return engine


def told_of(
    noted: LastEngine | None, heard: LastEngine | None, *, has_engines: bool
) -> LastEngine | None:
    """Return what gateways are told: written as the last engine goes, not whenever one says more.

    Parameters
    ----------
    noted
        As it was written last.
    heard
        What this process heard last.
    """
    if has_engines and noted is not None:
        return noted
    return heard or noted


def note(source: str, engine: LastEngine) -> dict[str, str]:
    """Annotations of the object with the routing document."""
    text = msgspec.json.encode(_Kept(source=source, engine=engine), order="sorted").decode()
    return {LAST_ENGINE_ANNOTATION: text}


def noted(metadata: Mapping[str, Any], source: str) -> LastEngine | None:
    """Read what `note` wrote; None where it is of another model, or not as it was written."""
    text = (metadata.get("annotations") or {}).get(LAST_ENGINE_ANNOTATION, "")
    with suppress(msgspec.MsgspecError, ValueError):
        kept = msgspec.json.decode(text, type=_Kept)
        if kept.source == source:
            return kept.engine
    return None
