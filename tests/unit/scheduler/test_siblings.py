"""Several continuations of one prompt: computed once, its blocks shared, copied when written."""

from typing import Any

import pytest

from quire_engine.protocol.messages import FinishReason
from tests.unit.scheduler.harness import Harness, generate, limits

PROMPT = list(range(1, 15))
"""Fourteen tokens: three full blocks of four, and half of another."""


def roomy(**options: Any) -> Harness:
    return Harness(
        **({"num_blocks": 100, "max_num_seqs": 8, "max_num_batched_tokens": 32} | options)
    )


def test_all_get_what_they_would_get_alone() -> None:
    harness = roomy()
    harness.add(PROMPT, max_tokens=9, num_sequences=4)
    harness.run_to_end()
    assert len(harness.outputs) == 4
    assert all(output == generate(PROMPT, 9) for output in harness.outputs.values())
    assert harness.scheduler.blocks.pool.num_held == 0


@pytest.mark.parametrize("length", [14, 16, 1])
def test_the_prompt_is_computed_once_and_its_full_blocks_are_held_once(length: int) -> None:
    harness = roomy()
    prompt = list(range(1, length + 1))
    harness.add(prompt, max_tokens=20, num_sequences=4)
    harness.step()
    harness.step()
    scheduler = harness.scheduler
    assert len(scheduler.running) == 4
    # after the prompt, one token of the leader, and the prompt's last one again for each other
    assert scheduler.counters.num_scheduled_tokens == length + 1 + 3
    num_shared, num_last = (length - 1) // 4, 4
    has_leader_grown = length % 4 == 0
    assert scheduler.blocks.pool.num_held == num_shared + num_last + has_leader_grown


def test_sharing_needs_no_prefix_cache() -> None:
    harness = roomy()
    harness.scheduler.blocks._enabled = False
    harness.add(PROMPT, max_tokens=9, num_sequences=3)
    harness.run_to_end()
    assert all(output == generate(PROMPT, 9) for output in harness.outputs.values())
    assert harness.scheduler.counters.num_scheduled_tokens == 14 + 2 + 3 * 8


def test_followers_wait_while_a_long_prompt_is_computed() -> None:
    harness = roomy(max_num_batched_tokens=8)
    harness.add(PROMPT, max_tokens=9, num_sequences=2)
    harness.step()
    assert len(harness.scheduler.running) == 1
    assert len(harness.scheduler.roster.held) == 1
    other = harness.add([30], max_tokens=2)
    harness.step()
    assert harness.requests[other].row is not None, "nobody waits behind a follower"
    harness.run_to_end()


def test_ending_the_leader_early_lets_the_others_go_on() -> None:
    harness = roomy(max_num_batched_tokens=8)
    leader = harness.add(PROMPT, max_tokens=6, num_sequences=3)
    harness.step()
    harness.scheduler.abort([leader])
    harness.scheduler.check_invariants()
    harness.run_to_end()
    assert [len(output) for output in harness.outputs.values()] == [0, 6, 6]


def test_a_follower_can_end_while_it_is_held_back() -> None:
    harness = roomy()
    harness.add(PROMPT, max_tokens=6, num_sequences=3)
    harness.scheduler.abort(["request-2"])
    harness.scheduler.check_invariants()
    harness.run_to_end()
    assert [len(output) for output in harness.outputs.values()] == [6, 0, 6]


def test_one_token_each_is_a_whole_answer() -> None:
    harness = roomy()
    harness.add(PROMPT, max_tokens=1, num_sequences=3)
    harness.run_to_end()
    assert all(output == generate(PROMPT, 1) for output in harness.outputs.values())


def test_all_together_are_judged() -> None:
    """One fits at once; four do not, and are refused as one."""
    harness = Harness(num_blocks=16, max_num_seqs=4, limits=limits())
    harness.add([40] * 20, max_tokens=12)
    harness.step()
    alone = harness.add(PROMPT, max_tokens=12, starts_now=True)
    assert alone not in harness.refused
    harness.scheduler.abort([alone])
    four = harness.add(PROMPT, max_tokens=12, starts_now=True, num_sequences=4)
    assert four in harness.refused
    assert harness.scheduler.ledger.num_queued_blocks == 0
    harness.run_to_end()


def test_a_leader_refused_while_it_waits_takes_its_followers_along() -> None:
    harness = Harness(num_blocks=8, max_num_seqs=1, limits=limits(max_queue_seconds=3.0))
    harness.add([40] * 8, max_tokens=12)
    harness.step()
    harness.add(PROMPT, max_tokens=2, num_sequences=3)
    for _ in range(6):
        harness.step()
    reasons = [request.finish_reason for request in harness.requests.values()][1:]
    assert reasons == [FinishReason.REFUSED] * 3
    harness.run_to_end()


def test_waiting_followers_count_the_blocks_that_they_will_take() -> None:
    harness = roomy()
    harness.add(PROMPT, max_tokens=9, num_sequences=4)
    assert harness.scheduler.ledger.num_queued_blocks == 4 + 3
