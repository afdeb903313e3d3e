"""Background requests give way, and yet go on. Blocks hold 4 tokens; a step takes a second."""

import pytest

from quire_engine.profiles.step_time import StepLimits, StepTimeModel, constant_step_time
from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.admission import RefusalReason
from tests.unit.scheduler.harness import Harness, limits

BACKGROUND = Priority.BACKGROUND
SECOND = constant_step_time(1.0)


def prompt(num_blocks: int, first: int = 1) -> list[int]:
    """Fill so many blocks but for one slot, which the first token takes."""
    return [first] * (4 * num_blocks - 1)


def running(harness: Harness) -> set[str]:
    return {request.request_id for request in harness.scheduler.running}


def flood(harness: Harness, count: int, *, num_blocks: int = 1, max_tokens: int = 8) -> list[str]:
    """Bring background requests with prompts of their own."""
    return [
        harness.add(prompt(num_blocks, 100 + index), max_tokens=max_tokens, priority=BACKGROUND)
        for index in range(count)
    ]


def test_a_background_request_gives_its_row_to_an_interactive_one() -> None:
    harness = Harness(num_blocks=16, max_num_seqs=1)
    background = harness.add([1], max_tokens=30, priority=BACKGROUND)
    harness.step()
    interactive = harness.add([2], max_tokens=2)
    harness.step()
    harness.step()
    assert len(harness.outputs[interactive]) == 2
    harness.run_to_end()
    assert len(harness.outputs[background]) == 30


def test_as_many_give_way_as_the_blocks_of_an_interactive_request_need() -> None:
    harness = Harness(num_blocks=20, max_num_seqs=8, max_num_batched_tokens=100)
    background = flood(harness, 5, num_blocks=3)
    harness.step()
    assert harness.scheduler.blocks.pool.num_free < 12
    interactive = harness.add(prompt(12, 2), max_tokens=4)
    harness.step()
    assert harness.outputs[interactive], "it waits for background requests"
    assert len(running(harness)) > 1, "more gave way than had to"
    harness.run_to_end()
    assert all(len(harness.outputs[request_id]) == 8 for request_id in background)


def test_several_interactive_requests_find_rows_in_the_same_step() -> None:
    harness = Harness(num_blocks=64, max_num_seqs=4, max_num_batched_tokens=100)
    flood(harness, 8)
    harness.step()
    interactive = [harness.add([number], max_tokens=2) for number in range(3)]
    harness.step()
    assert all(harness.outputs[request_id] for request_id in interactive)
    assert len(running(harness)) == 4, "more gave way than had to"


def test_nobody_gives_way_in_vain() -> None:
    harness = Harness(num_blocks=20, max_num_seqs=8, max_num_batched_tokens=100)
    holder = harness.add(prompt(10), max_tokens=20)
    background = flood(harness, 1)
    harness.step()
    assert running(harness) == {holder, *background}
    harness.add(prompt(12, 2), max_tokens=1)
    harness.step()
    assert running(harness) == {holder, *background}


def test_what_gave_way_is_no_longer_reserved_but_queued() -> None:
    harness = Harness(num_blocks=20, max_num_seqs=1, max_num_batched_tokens=100)
    flood(harness, 1, num_blocks=5)
    harness.step()
    harness.add([1], max_tokens=2)
    harness.step()
    ledger = harness.scheduler.ledger
    assert not ledger.has_background
    assert ledger.num_queued_blocks == 5
    assert harness.scheduler.num_reserved_blocks() == 1
    harness.run_to_end()
    assert ledger.num_queued_blocks == 0


def test_one_that_must_start_now_starts_in_spite_of_a_flood() -> None:
    harness = Harness(
        num_blocks=20, max_num_batched_tokens=100, limits=limits(admission=0.9), step_time=SECOND
    )
    flood(harness, 30, num_blocks=3, max_tokens=40)
    harness.step()
    now = harness.add(prompt(3, 2), max_tokens=2, starts_now=True)
    assert now not in harness.refused
    harness.step()
    assert harness.outputs[now]


def test_prompts_of_background_requests_take_nothing_off_an_interactive_deadline() -> None:
    harness = Harness(num_blocks=100, limits=limits(), step_time=SECOND)
    flood(harness, 3, num_blocks=20)
    harness.step()
    interactive = harness.add([1], max_tokens=1, deadline_seconds=4.0)
    harness.step()
    assert harness.outputs[interactive]
    background = harness.add([2], max_tokens=1, deadline_seconds=4.0, priority=BACKGROUND)
    assert harness.refused[background].reason is RefusalReason.DEADLINE


def test_background_decodes_pause_for_interactive_prompts_that_need_the_step() -> None:
    step_time = StepTimeModel(
        source="test",
        compute_tokens=(1, 1000),
        compute_seconds=(0.001, 1.0),
        seconds_per_sequence=0.1,
        limits=StepLimits(num_decodes=100, context_tokens=1000, prefill_tokens=1000),
    )
    harness = Harness(
        num_blocks=200,
        max_num_seqs=8,
        max_num_batched_tokens=1000,
        limits=limits(per_token=0.6),
        step_time=step_time,
    )
    background = flood(harness, 4, max_tokens=20)
    for _ in range(3):
        harness.step()
    before = {request_id: len(harness.outputs[request_id]) for request_id in background}
    interactive = harness.add([1] * 500, max_tokens=1)
    harness.step()
    assert harness.outputs[interactive], "background decodes took its time"
    assert running(harness) == set(background), "they gave more than a step"
    gone_on = [len(harness.outputs[request_id]) > before[request_id] for request_id in background]
    assert sum(gone_on) <= 1
    harness.run_to_end()
    assert all(len(harness.outputs[request_id]) == 20 for request_id in background)


def test_how_long_background_requests_waited_says_nothing_of_interactive_ones() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=1, limits=limits(), step_time=SECOND)
    for _ in range(10):
        harness.add([1], max_tokens=1, priority=BACKGROUND)
    harness.step()
    for request in harness.scheduler.waiting:
        request.predicted_first_token = harness.now
    harness.run_to_end()
    harness.add([2], max_tokens=9, priority=BACKGROUND)
    harness.step()
    assert harness.add([3], max_tokens=1, deadline_seconds=3.0) not in harness.refused


def test_a_background_request_ages_into_an_interactive_one() -> None:
    harness = Harness(num_blocks=16, max_num_seqs=1, ageing_seconds=10.0)
    old = harness.add([1], max_tokens=1, priority=BACKGROUND)
    while not harness.outputs[old]:
        assert harness.now < 15.0, "interactive requests starve a background one"
        harness.add([2], max_tokens=1)
        harness.step()
    assert harness.now >= 10.0


def test_of_a_backlog_that_aged_one_request_at_a_time_goes_before_interactive_ones() -> None:
    harness = Harness(num_blocks=64, max_num_seqs=3, ageing_seconds=5.0)
    backlog = flood(harness, 12, max_tokens=6)
    while harness.scheduler.has_work():
        late = [harness.add([number], max_tokens=1) for number in range(2)]
        harness.step()
        if any(len(harness.outputs[request_id]) < 6 for request_id in backlog):
            assert all(harness.outputs[request_id] for request_id in late), "it had to wait"
        else:
            break
        assert harness.now < 12 * 8 + 6, "the backlog stands still"
    harness.run_to_end()


def test_an_aged_request_keeps_the_lower_ceiling_and_is_passed_meanwhile() -> None:
    harness = Harness(
        num_blocks=20,
        max_num_batched_tokens=100,
        ageing_seconds=3.0,
        limits=limits(admission=1.0, background=0.5),
    )
    harness.add(prompt(8), max_tokens=30)
    harness.step()
    background = harness.add(prompt(6, 2), max_tokens=2, priority=BACKGROUND)
    for number in range(20):
        passing = harness.add([number], max_tokens=1)
        harness.step()
        assert harness.outputs[passing]
    assert harness.requests[background].has_aged
    assert not harness.outputs[background]
    harness.run_to_end()
    assert len(harness.outputs[background]) == 2


def test_an_aged_prompt_goes_on_beside_interactive_prompts_that_use_every_step_up() -> None:
    harness = Harness(num_blocks=200, max_num_seqs=4, max_num_batched_tokens=16, ageing_seconds=5.0)
    background = harness.add([100] * 60, max_tokens=1, priority=BACKGROUND)
    num_steps_with_both = 0
    while not harness.outputs[background]:
        harness.add([len(harness.requests)] * 30, max_tokens=1)
        harness.step()
        request = harness.requests[background]
        num_steps_with_both += request.has_aged and request.row is not None
        assert harness.now < 30.0, "interactive prompts starve a background one"
    assert num_steps_with_both > 60 / 16, "it took whole steps from interactive prompts"


def test_interactive_prompts_come_before_those_of_an_aged_request() -> None:
    harness = Harness(num_blocks=200, max_num_batched_tokens=100, ageing_seconds=1.0)
    harness.add([1], max_tokens=50)
    background = harness.add([100] * 600, max_tokens=1, priority=BACKGROUND)
    harness.step()
    harness.step()
    assert harness.requests[background].has_aged
    interactive = harness.add([2] * 80, max_tokens=1)
    harness.step()
    assert harness.outputs[interactive], "an aged prompt's chunks come first"


@pytest.mark.parametrize("max_tokens", [4, 12])
def test_a_burst_that_meets_an_idle_engine_is_told_when_the_first_are_through(
    max_tokens: int,
) -> None:
    harness = Harness(num_blocks=100, max_num_seqs=4, limits=limits(), step_time=SECOND)
    for number in range(8):
        harness.add([number], max_tokens=max_tokens)
    refused = harness.add([9], max_tokens=1, starts_now=True)
    told = harness.refused[refused].retry_after_seconds
    num_steps = 0
    while harness.scheduler.waiting:
        harness.step()
        num_steps += 1
    assert num_steps <= told < 60.0, "room was promised too early, or nothing was known of it"


def test_what_must_start_now_is_refused_even_if_no_step_was_ever_measured() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=1, limits=limits())
    harness.add([1], max_tokens=20)
    harness.step()
    harness.scheduler.pace.observe_step(0.0)
    refused = harness.add([2], starts_now=True)
    assert harness.refused[refused].reason is RefusalReason.NO_ROOM
