"""What is believed of an engine's account of itself."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.protocol.messages import BlockCounts
from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.plausible import ImplausibleStateError, check_state
from tests.unit.gateway.builders import THRESHOLDS, endpoint, state

counts = st.integers(-(1 << 62), 1 << 62)


def changed(path: str, value: Any) -> EngineState:
    """A state with one figure in it changed."""
    fields: dict[str, Any] = msgspec.to_builtins(state(held=10, max_step_tokens=100))
    *outer, last = path.split(".")
    place = fields
    for name in outer:
        place = place[name]
    place[last] = value
    return msgspec.convert(fields, EngineState)


def test_what_an_engine_says_is_taken_as_it_is() -> None:
    told = state(held=10, reserved=20, queued=5, running=3, waiting=2, num_prompt_tokens_ahead=9)
    assert check_state(told) is told
    assert check_state(changed("thresholds", None)).thresholds is None


@pytest.mark.parametrize("value", [-1, -(1 << 62), 1 << 46, 1 << 62])
@pytest.mark.parametrize(
    "name",
    [
        "tokens_per_block",
        "max_model_len",
        "max_step_tokens",
        "num_filled_tokens",
        "num_prompt_tokens_ahead",
        *(f"blocks.{name}" for name in BlockCounts.__struct_fields__),
        *(f"sequences.{name}" for name in ("running", "waiting", "slots")),
    ],
)
def test_counts_that_none_can_have_are_refused(name: str, value: int) -> None:
    with pytest.raises(ImplausibleStateError, match=f"{name} is {value}"):
        check_state(changed(name, value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("admission", 0.0),
        ("admission", 1e300),
        ("background", -0.5),
        ("slo_time_to_first_token_seconds", 0.0),
        ("slo_time_per_output_token_seconds", -1.0),
    ],
)
def test_limits_that_are_none_are_refused(name: str, value: float) -> None:
    limits = THRESHOLDS.__replace__(**{name: value})
    with pytest.raises(ImplausibleStateError, match=f"thresholds.{name} is"):
        check_state(state(thresholds=limits))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence", -1),
        ("tokens_per_block", (1 << 16) + 1),
        ("prefix_chunks.first_number", -1),
        ("prefix_chunks.next_number", -5),
        ("num_preemptions", -1),
        ("num_core_restarts", -1),
        ("num_scheduled_tokens", -1),
        ("gateways", {"g": -1}),
        ("gateways", {str(number): 1 for number in range(5000)}),
        ("thresholds.max_queue_seconds", -1.0),
        ("thresholds.max_waiting_requests", -1),
        ("tokens_per_block", 0),
        ("sequences.slots", 0),
        ("blocks", {"total": 0, "held": 0, "free": 0, "cached": 0, "reserved": 0, "queued": 0}),
    ],
)
def test_what_no_engine_that_is_ready_says_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ImplausibleStateError):
        check_state(changed(name, value))


def test_while_its_model_is_on_the_way_an_engine_has_nothing() -> None:
    told = state(total=0, is_ready=False, tokens_per_block=0, max_model_len=0, thresholds=None)
    assert check_state(told) is told


def test_blocks_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ImplausibleStateError, match=r"held \(10\) and free \(991\) are not all"):
        check_state(changed("blocks.free", 991))


def test_a_part_is_no_larger_than_its_whole() -> None:
    told = BlockCounts(total=100, held=40, free=60, cached=90, reserved=10, queued=0, yielding=1000)
    taken = check_state(state().__replace__(blocks=told)).blocks
    assert taken == told.__replace__(reserved=40, cached=60, yielding=40)


@given(
    blocks=st.builds(
        BlockCounts,
        total=counts,
        held=counts,
        free=counts,
        cached=counts,
        reserved=counts,
        queued=counts,
        yielding=counts,
    ),
    tokens_per_block=counts,
    ahead=counts,
)
def test_of_whatever_passes_figures_can_be_made(
    blocks: BlockCounts, tokens_per_block: int, ahead: int
) -> None:
    told = state(tokens_per_block=tokens_per_block, num_prompt_tokens_ahead=ahead)
    try:
        taken = check_state(told.__replace__(blocks=blocks))
    except ImplausibleStateError:
        return
    figures = endpoint(1, taken).figures
    if tokens_per_block:
        assert figures is not None
        assert figures.num_blocks >= 0
        assert figures.queue_seconds >= 0.0
