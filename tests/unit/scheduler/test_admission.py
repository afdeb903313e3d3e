"""Who may come in, by example. Blocks hold 4 tokens; a step takes a second."""

from itertools import count
from math import log

import pytest

from quire_engine.errors import ConfigError
from quire_engine.profiles.step_time import StepLimits, StepTimeModel, constant_step_time
from quire_engine.protocol.messages import FinishReason, Priority
from quire_engine.scheduler.admission import Refusal, RefusalReason
from tests.unit.scheduler.harness import Harness, limits

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND
SECOND = constant_step_time(1.0)


def prompt(num_blocks: int, first: int = 1) -> list[int]:
    """Fill so many blocks but for one slot, which the first token takes."""
    return [first] * (4 * num_blocks - 1)


def refusal(harness: Harness, request_id: str) -> Refusal:
    return harness.refused[request_id]


def running(harness: Harness) -> set[str]:
    return {request.request_id for request in harness.scheduler.running}


def test_background_requests_stop_at_a_lower_ceiling_than_interactive_ones() -> None:
    harness = Harness(
        num_blocks=100,
        max_num_batched_tokens=500,
        limits=limits(admission=0.9, background=0.5),
    )
    first = harness.add(prompt(45), max_tokens=10)
    harness.step()
    later = harness.add(prompt(10, 2), max_tokens=10, priority=BACKGROUND)
    sooner = harness.add(prompt(10, 3), max_tokens=10)
    harness.step()
    assert running(harness) == {first, sooner}
    harness.run_to_end()
    assert len(harness.outputs[later]) == 10


def test_an_empty_engine_takes_any_request_that_fits_at_all() -> None:
    harness = Harness(
        num_blocks=20,
        max_num_batched_tokens=500,
        limits=limits(admission=0.1, first_token=0.5, per_token=0.5),
        step_time=SECOND,
    )
    request_id = harness.add([1] * 78, max_tokens=2, starts_now=True, deadline_seconds=0.001)
    assert request_id not in harness.refused


def test_a_request_that_never_fits_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="never fit"):
        Harness(num_blocks=4).add([1] * 16, max_tokens=1)


def test_what_must_start_now_is_refused_where_others_would_wait() -> None:
    harness = Harness(
        num_blocks=20, max_num_batched_tokens=500, limits=limits(admission=0.9), step_time=SECOND
    )
    harness.add(prompt(15), max_tokens=16)
    harness.step()
    now = harness.add(prompt(10, 2), max_tokens=2, starts_now=True)
    small = harness.add(prompt(2, 3), max_tokens=2, starts_now=True)
    waits = harness.add(prompt(10, 4), max_tokens=2)
    assert harness.refused.keys() == {now}
    assert refusal(harness, now).reason is RefusalReason.NO_ROOM
    harness.run_to_end()
    assert len(harness.outputs[small]) == len(harness.outputs[waits]) == 2


def test_seats_run_out_before_blocks() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=1, limits=limits(), step_time=SECOND)
    harness.add([1], max_tokens=20)
    harness.step()
    assert refusal(harness, harness.add([1], starts_now=True)).reason is RefusalReason.NO_ROOM


def step_time(*, seconds_per_sequence: float) -> StepTimeModel:
    return StepTimeModel(
        source="test",
        compute_tokens=(1, 1000),
        compute_seconds=(0.0, 0.0),
        seconds_per_sequence=seconds_per_sequence,
        limits=StepLimits(num_decodes=1000, context_tokens=1000, prefill_tokens=1000),
    )


def test_no_more_run_than_the_objective_for_each_token_allows() -> None:
    harness = Harness(
        num_blocks=100,
        limits=limits(per_token=2.5),
        step_time=step_time(seconds_per_sequence=1.0),
    )
    ids = [harness.add([index], max_tokens=10) for index in range(4)]
    harness.step()
    assert running(harness) == set(ids[:2])
    harness.run_to_end()
    assert all(len(harness.outputs[request_id]) == 10 for request_id in ids)


def busy_harness() -> Harness:
    """One runs; prompts go at 16 tokens a second."""
    harness = Harness(num_blocks=100, limits=limits(), step_time=SECOND)
    harness.add([1], max_tokens=60)
    harness.step()
    return harness


def test_a_prompt_that_takes_longer_than_its_deadline_is_refused_at_once() -> None:
    harness = busy_harness()
    late = harness.add([1] * 150, max_tokens=1, deadline_seconds=5.0)
    in_time = harness.add([1] * 15, max_tokens=1, deadline_seconds=5.0)
    assert refusal(harness, late).reason is RefusalReason.DEADLINE
    assert in_time not in harness.refused


def test_prompts_ahead_count_against_a_deadline() -> None:
    harness = busy_harness()
    harness.add([1] * 150, max_tokens=1)
    behind = harness.add([2], max_tokens=1, deadline_seconds=5.0)
    assert refusal(harness, behind).reason is RefusalReason.DEADLINE


def test_one_that_can_no_longer_be_in_time_is_refused_while_it_waits() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=1, limits=limits(), step_time=SECOND)
    runner = harness.add([1], max_tokens=40)
    harness.step()
    harness.scheduler.admission.errors[INTERACTIVE].observe(
        60.0, 0.0
    )  # so far the wait was always overrated
    hopeful = harness.add([2], max_tokens=1, deadline_seconds=5.0)
    assert hopeful not in harness.refused
    while hopeful not in harness.refused:
        harness.step()
    assert harness.requests[hopeful].finish_reason is FinishReason.REFUSED
    assert refusal(harness, hopeful).reason is RefusalReason.DEADLINE
    assert harness.now <= 7.0, "it was kept past its deadline"
    harness.run_to_end()
    assert len(harness.outputs[runner]) == 40


def test_what_was_let_in_is_never_refused_not_even_after_a_preemption() -> None:
    harness = Harness(num_blocks=4, max_num_seqs=2, limits=limits(), step_time=SECOND)
    first = harness.add([1] * 7, max_tokens=8, deadline_seconds=3.0)
    harness.step()
    second = harness.add([2] * 3, max_tokens=10, deadline_seconds=3.0)
    harness.run_to_end()
    assert harness.scheduler.counters.num_preemptions >= 1
    assert not harness.refused
    assert (len(harness.outputs[first]), len(harness.outputs[second])) == (8, 10)


def test_the_queue_is_bounded_in_number() -> None:
    harness = Harness(num_blocks=8, max_num_seqs=1, limits=limits(max_waiting_requests=2))
    harness.add([1], max_tokens=20)
    harness.step()
    ids = [harness.add([1]) for _ in range(3)]
    assert harness.refused.keys() == {ids[2]}
    assert refusal(harness, ids[2]).reason is RefusalReason.QUEUE_FULL


def test_the_queue_is_bounded_in_time() -> None:
    harness = Harness(num_blocks=8, max_num_seqs=1, limits=limits(max_queue_seconds=5.0))
    harness.add([1], max_tokens=20)
    harness.step()
    waiting = harness.add([1])
    for _ in range(5):
        harness.step()
        assert waiting not in harness.refused
    harness.step()
    assert waiting in harness.refused
    assert harness.scheduler.counters.decisions[RefusalReason.QUEUE_TIME] == 1


@pytest.mark.parametrize("num_tokens", [1, 50, 1000, 50_000])
def test_the_time_to_try_again_is_between_a_second_and_a_minute(num_tokens: int) -> None:
    harness = Harness(num_blocks=20_000, limits=limits(), step_time=SECOND)
    harness.add([1], max_tokens=30)
    harness.step()
    refused = harness.add([1] * num_tokens, max_tokens=1, deadline_seconds=0.0)
    assert 1.0 <= refusal(harness, refused).retry_after_seconds <= 60.0


def test_other_limits_are_in_force_from_the_next_decision_on() -> None:
    harness = busy_harness()
    harness.scheduler.set_thresholds(limits(max_waiting_requests=0))
    assert harness.add([1]) in harness.refused
    harness.scheduler.set_thresholds(limits())
    assert harness.add([1]) not in harness.refused


def test_a_step_time_of_nan_is_no_step_time() -> None:
    with pytest.raises(ConfigError, match="seconds_per_sequence"):
        step_time(seconds_per_sequence=float("nan"))


def test_the_pressure_names_what_binds() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=4, limits=limits(first_token=10.0))
    assert harness.scheduler.pressure().blocks == 0.0
    for _ in range(3):
        harness.add([1], max_tokens=20)
    harness.step()
    pressure = harness.scheduler.pressure()
    assert pressure.seats == 0.75
    assert pressure.blocks == pytest.approx(harness.scheduler.num_reserved_blocks() / 100)


def test_a_request_that_comes_during_a_step_sees_what_runs_in_it() -> None:
    harness = Harness(
        num_blocks=100,
        limits=limits(per_token=2.5),
        step_time=step_time(seconds_per_sequence=1.0),
    )
    for index in range(2):
        harness.add([index], max_tokens=10)
    harness.step()
    plan = harness.scheduler.schedule(harness.now + 1.0)
    during = harness.scheduler.roster.load()
    harness.scheduler.postprocess(plan, harness.executor.run(plan.batch))
    assert (during.num_decodes, during.prefill_tokens) == (2, 0)


def test_a_clock_that_goes_back_stands_still() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=1, limits=limits(max_queue_seconds=50.0))
    running_one = harness.add([1], max_tokens=9)
    waiting = harness.add([2], max_tokens=2)
    for now in (10.0, 5.0, -1e9, 11.0):
        harness.now = now
        harness.step()
    assert harness.scheduler.pace.seconds_per_token(1, 1) >= 0.0
    harness.run_to_end()
    assert not harness.refused
    assert (len(harness.outputs[running_one]), len(harness.outputs[waiting])) == (9, 2)


def test_time_without_work_teaches_nothing() -> None:
    harness = Harness(num_blocks=100, limits=limits(), step_time=SECOND)
    for _ in range(2):
        harness.add([1], max_tokens=5, deadline_seconds=100.0)
        harness.run_to_end()
        harness.now += 1000.0
    assert harness.scheduler.pace.seconds_per_token(1, 1) == pytest.approx(1.0)
    assert harness.scheduler.admission.errors_of_started[INTERACTIVE].margin() < 10.0


def test_slow_starts_keep_a_margin_before_the_deadlines_of_others() -> None:
    harness = Harness(num_blocks=100, max_num_seqs=1, limits=limits(), step_time=SECOND)
    harness.add([1], max_tokens=8)
    harness.step()
    hopeful = harness.add([2], max_tokens=1, deadline_seconds=25.0)
    harness.step()
    assert hopeful not in harness.refused
    for _ in range(20):
        harness.scheduler.admission.errors_of_started[INTERACTIVE].observe(0.0, 24.0)
    harness.step()
    assert hopeful in harness.refused


def test_a_prompt_that_needs_a_lull_is_told_how_far_lulls_are_apart() -> None:
    harness = Harness(num_blocks=1000, max_num_seqs=64, step_time=SECOND)
    step_tokens, numbers = harness.budget, count(1)

    def bring(num_prompts: int) -> None:
        """Bring prompts of their own that take a step each."""
        for _ in range(num_prompts):
            harness.add([next(numbers)] * step_tokens, max_tokens=1)

    def keep_busy(num_steps: int) -> None:
        for _ in range(num_steps):
            bring(1)
            harness.step()

    def ask() -> float:
        request_id = harness.add([0] * 17 * step_tokens, max_tokens=1, deadline_seconds=20.0)
        return refusal(harness, request_id).retry_after_seconds

    bring(6)
    keep_busy(1)
    assert ask() < 10.0, "nobody knows yet that others come meanwhile"
    keep_busy(59)
    told_in_the_first = ask()
    harness.run_to_end()
    bring(6)
    keep_busy(1)
    assert ask() == pytest.approx(30.0 * log(2.0), rel=0.3)
    assert told_in_the_first > 10.0, "a busy time that goes on counts, too"
