"""What others will wait for: prompt tokens that are still to be computed."""

from tests.unit.scheduler.harness import Harness


def test_prompt_tokens_ahead_are_those_of_all_that_run_or_wait() -> None:
    harness = Harness(num_blocks=64, max_num_seqs=2, max_num_batched_tokens=16)
    for first in (0, 100, 200):
        harness.add(list(range(first, first + 40)), max_tokens=50)
    ahead = [harness.scheduler.roster.num_prompt_tokens_ahead()]
    for _ in range(12):
        harness.step()
        ahead.append(harness.scheduler.roster.num_prompt_tokens_ahead())
    assert ahead[:3] == [120, 104, 88]
    assert ahead == sorted(ahead, reverse=True)
    assert ahead[-1] == 40  # the third waits for a row


def test_decodes_are_not_ahead() -> None:
    harness = Harness(num_blocks=8)
    harness.add([1, 2, 3], max_tokens=5)
    harness.step()
    harness.step()
    assert harness.scheduler.roster.num_prompt_tokens_ahead() == 0
