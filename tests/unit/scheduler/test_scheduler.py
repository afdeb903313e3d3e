"""The scheduler's rules by example."""

from quire_engine.protocol.messages import FinishReason, Priority
from quire_engine.scheduler.room import MAX_TIMES_PASSED
from tests.unit.scheduler.harness import Harness

BACKGROUND = Priority.BACKGROUND


def test_an_idle_scheduler_plans_nothing() -> None:
    harness = Harness(num_blocks=4)
    assert harness.step() == []


def test_a_prompt_is_cut_into_chunks_of_the_budget() -> None:
    harness = Harness(num_blocks=16, max_num_batched_tokens=16)
    request_id = harness.add(list(range(40)), max_tokens=2)
    assert harness.step() == []
    assert harness.step() == []
    (_, delta) = harness.step()[0]
    assert delta.request_id == request_id
    assert len(delta.token_ids) == 1


def test_decodes_are_computed_beside_a_long_prompt() -> None:
    harness = Harness(num_blocks=32, max_num_batched_tokens=16)
    short = harness.add([1], max_tokens=10)
    harness.step()
    harness.add(list(range(60)), max_tokens=1)
    for expected in range(2, 6):
        harness.step()
        assert len(harness.outputs[short]) == expected


def test_the_last_token_comes_with_its_reason_and_the_blocks_are_free() -> None:
    harness = Harness(num_blocks=4)
    harness.add([1, 2, 3], max_tokens=1)
    ((client, delta),) = harness.step()
    assert (client, delta.finish_reason) == ("client", FinishReason.LENGTH)
    assert harness.scheduler.blocks.pool.num_held == 0


def test_a_cached_prompt_is_reported_with_the_first_token_only() -> None:
    harness = Harness(num_blocks=8)
    harness.add(list(range(9)), max_tokens=1)
    harness.run_to_end()
    harness.add(list(range(9)), max_tokens=2)
    ((_, first),) = harness.step()
    ((_, second),) = harness.step()
    assert (first.num_cached_tokens, second.num_cached_tokens) == (8, 0)
    assert harness.scheduler.counters.num_prefix_hits == 8
    assert harness.scheduler.counters.num_prefix_queries == 18


def test_interactive_requests_start_before_background_ones() -> None:
    harness = Harness(num_blocks=16, max_num_seqs=1)
    later = harness.add([1], max_tokens=1, priority=BACKGROUND)
    sooner = harness.add([2], max_tokens=1)
    harness.step()
    assert len(harness.outputs[sooner]) == 1
    assert harness.outputs[later] == []


def test_the_background_request_gives_way_when_no_block_is_free() -> None:
    harness = Harness(num_blocks=4, max_num_seqs=2)
    background = harness.add([1] * 7, max_tokens=8, priority=BACKGROUND)
    harness.step()
    interactive = harness.add([2] * 3, max_tokens=10)
    harness.run_to_end()
    assert harness.requests[background].num_preemptions >= 1
    assert harness.requests[interactive].num_preemptions == 0
    assert len(harness.outputs[background]) == 8


def test_preempted_tokens_are_counted_as_recomputed_unless_the_cache_has_them() -> None:
    harness = Harness(num_blocks=4, max_num_seqs=2)
    harness.add([1] * 7, max_tokens=9)
    harness.add([2] * 3, max_tokens=10)
    harness.run_to_end()
    counters = harness.scheduler.counters
    assert counters.num_preemptions >= 1
    computed = sum(len(r.token_ids) - 1 for r in harness.requests.values())
    assert counters.num_scheduled_tokens == computed + counters.num_recomputed_tokens


def test_small_requests_pass_a_big_one_that_does_not_fit_but_not_for_ever() -> None:
    harness = Harness(num_blocks=8, max_num_seqs=4)
    runner = harness.add([1] * 8, max_tokens=8)
    harness.step()
    big = harness.add(list(range(28)), max_tokens=1)
    small = harness.add([3], max_tokens=2)
    harness.step()
    assert harness.outputs[small], "a small request waits for a big one that does not fit"
    num_later = 0
    while not harness.outputs[big]:
        harness.add([4], max_tokens=3)
        num_later += 1
        assert num_later < 3 * MAX_TIMES_PASSED, "small requests starve a big one"
        harness.step()
    assert len(harness.outputs[runner]) == 8


def test_aborting_twice_or_an_unknown_request_is_harmless() -> None:
    harness = Harness(num_blocks=8)
    request_id = harness.add([1] * 9, max_tokens=5)
    other = harness.add([2] * 5, max_tokens=3)
    harness.step()
    assert len(harness.scheduler.abort([request_id, request_id, "unknown"])) == 1
    harness.run_to_end()
    assert len(harness.outputs[other]) == 3
    assert harness.scheduler.blocks.pool.num_held == 0


def test_a_failed_step_ends_its_requests_only() -> None:
    harness = Harness(num_blocks=16, max_num_seqs=1)
    failing = harness.add([1], max_tokens=5)
    waiting = harness.add([2], max_tokens=5)
    plan = harness.scheduler.schedule(1.0)
    ((_, delta),) = harness.scheduler.fail(plan.requests[0], "the device is on fire")
    assert delta.request_id == failing
    assert (delta.finish_reason, delta.error) == (FinishReason.ERROR, "the device is on fire")
    harness.executor.run(plan.batch)
    harness.run_to_end()
    assert len(harness.outputs[waiting]) == 5
