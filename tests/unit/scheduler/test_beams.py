"""Beam search on shared blocks: what it finds, what it holds, and what becomes of it in company."""

from collections.abc import Callable
from typing import Any

import pytest

from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import FinishReason
from quire_engine.scheduler.beam_search import BeamSearch
from tests.unit.scheduler.harness import Harness, generate, limits, score_next, search

PROMPT = list(range(1, 15))
"""Fourteen tokens: three full blocks of four, and half of another."""


def roomy(**options: Any) -> Harness:
    return Harness(
        **({"num_blocks": 200, "max_num_seqs": 8, "max_num_batched_tokens": 32} | options)
    )


def answers(harness: Harness, leader: str, count: int) -> list[list[int]]:
    ids = [leader, *(f"{leader}.{index}" for index in range(1, count))]
    return [harness.outputs[name] for name in ids]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_it_finds_in_company_what_it_finds_alone(width: int) -> None:
    harness = roomy(max_num_seqs=10)
    params = BeamParams(width=width)
    leader = harness.add(PROMPT, max_tokens=9, num_sequences=width, beams=params)
    other = harness.add([5, 6, 7], max_tokens=12)
    harness.run_to_end()
    assert answers(harness, leader, width) == search(PROMPT, params, 9)
    assert harness.outputs[other] == generate([5, 6, 7], 12)
    assert harness.scheduler.blocks.pool.num_held == 0


def test_long_prompts_are_held_once_and_not_four_times() -> None:
    """Of four copies of prompt and answer, beams hold less than half, at any time."""
    harness = roomy(max_num_batched_tokens=512)
    prompt = [number % 50 for number in range(400)]
    harness.add(prompt, max_tokens=40, num_sequences=4, beams=BeamParams(width=4))
    most_held = 0
    while harness.scheduler.has_work():
        harness.step()
        most_held = max(most_held, harness.scheduler.blocks.pool.num_held)
    four_copies = 4 * harness.scheduler.blocks.num_blocks_for(440)
    assert 110 <= most_held <= four_copies / 2


def test_the_prompt_is_computed_once() -> None:
    harness = roomy()
    harness.add(PROMPT, max_tokens=5, num_sequences=1, beams=BeamParams(width=4))
    harness.run_to_end()
    assert harness.scheduler.counters.num_scheduled_tokens == len(PROMPT) + 4 * 4


def test_a_beam_that_dies_gives_its_blocks_back_at_once() -> None:
    harness = roomy()
    harness.add(PROMPT, max_tokens=30, num_sequences=4, beams=BeamParams(width=4))
    size = harness.scheduler.blocks.block_size
    for _ in range(20):
        harness.step()
        (group,) = harness.scheduler.roster.beam_groups
        texts = {tuple(m.token_ids[: m.num_computed_tokens]) for m in group.carriers}
        beginnings = {text[: first + size] for text in texts for first in range(0, len(text), size)}
        # a block for each different beginning; a beam that has just copied one holds it twice
        assert harness.scheduler.blocks.pool.num_held <= len(beginnings) + len(group.carriers) - 1


def test_clients_hear_of_the_start_and_then_of_the_end() -> None:
    harness = roomy()
    leader = harness.add(PROMPT, max_tokens=5, num_sequences=2, beams=BeamParams(width=4))
    deltas = []
    while harness.scheduler.has_work():
        deltas += [delta for _, delta in harness.step()]
    first, *last = deltas
    assert (first.request_id, first.token_ids, first.finish_reason) == (leader, [], None)
    assert first.queue_seconds is not None
    assert [delta.request_id for delta in last] == [leader, f"{leader}.1"]
    assert all(len(delta.token_ids) == 5 for delta in last)
    assert {delta.finish_reason for delta in last} == {FinishReason.LENGTH}


def test_all_rows_are_there_before_it_starts() -> None:
    """Two searches of three beams, and four rows: one after the other, never half of each."""
    harness = roomy(max_num_seqs=4)
    params = BeamParams(width=3)
    leaders = [harness.add([9, k], max_tokens=6, num_sequences=3, beams=params) for k in (1, 2)]
    harness.step()
    assert harness.requests[leaders[1]].row is None
    harness.run_to_end()
    for leader, k in zip(leaders, (1, 2), strict=True):
        assert answers(harness, leader, 3) == search([9, k], params, 6)


def test_a_search_is_not_starved_by_smaller_requests() -> None:
    harness = roomy(max_num_seqs=4)
    for number in range(4):
        harness.add([40 + number], max_tokens=8 + number)
    harness.step()
    leader = harness.add(PROMPT, max_tokens=3, beams=BeamParams(width=4))
    for number in range(200):
        if harness.requests[leader].finish_reason is not None:
            return
        harness.add([number % 50, 7], max_tokens=6)
        harness.step()
    raise AssertionError("smaller requests went before it again and again")


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("after_steps", [1, 2, 5, 9])
def test_a_preempted_search_goes_on_where_it_was(caches: bool, after_steps: int) -> None:
    harness = roomy(max_num_batched_tokens=8)
    harness.scheduler.blocks._enabled = caches
    params = BeamParams(width=4)
    leader = harness.add(PROMPT, max_tokens=12, num_sequences=4, beams=params)
    for _ in range(after_steps):
        harness.step()
    harness.scheduler.roster.preempt(harness.scheduler.running[0])
    assert harness.scheduler.blocks.pool.num_held == 0
    harness.scheduler.check_invariants()
    harness.run_to_end()
    assert answers(harness, leader, 4) == search(PROMPT, params, 12)
    assert harness.scheduler.counters.num_preemptions == 1


def test_a_cache_too_small_for_all_still_finds_everything() -> None:
    harness = roomy(num_blocks=22)
    params = BeamParams(width=4)
    leaders = [
        harness.add([k, *PROMPT[:5]], max_tokens=10, num_sequences=4, beams=params)
        for k in range(4)
    ]
    harness.run_to_end()
    for k, leader in enumerate(leaders):
        assert answers(harness, leader, 4) == search([k, *PROMPT[:5]], params, 10)


@pytest.mark.parametrize("which", [0, 2])
def test_aborting_any_of_its_answers_ends_it(which: int) -> None:
    harness = roomy()
    leader = harness.add(PROMPT, max_tokens=9, num_sequences=3, beams=BeamParams(width=4))
    harness.step()
    harness.step()
    harness.scheduler.abort([f"{leader}.{which}" if which else leader])
    harness.scheduler.check_invariants()
    assert not harness.scheduler.has_work()
    assert harness.scheduler.blocks.pool.num_held == 0


def test_a_failure_of_one_beam_is_everyones() -> None:
    harness = roomy()
    leader = harness.add(PROMPT, max_tokens=9, num_sequences=2, beams=BeamParams(width=4))
    harness.step()
    harness.step()
    news = harness.scheduler.fail(harness.requests[f"{leader}.3"], "it broke")
    assert [delta.request_id for _, delta in news] == [leader, f"{leader}.1"]
    assert all(delta.error == "it broke" for _, delta in news)
    assert harness.scheduler.fail(harness.requests[leader], "again") == []
    harness.scheduler.check_invariants()
    assert not harness.scheduler.has_work()


@pytest.mark.parametrize(
    ("options", "reason"), [({"max_num_seqs": 3}, "4 beams"), ({"num_blocks": 12}, "never fit")]
)
def test_what_never_fits_is_refused(options: dict[str, int], reason: str) -> None:
    harness = roomy(**options)
    with pytest.raises(ValueError, match=reason):
        harness.add(PROMPT, max_tokens=9, beams=BeamParams(width=4))
    harness.scheduler.check_invariants()


def test_all_beams_are_counted_before_they_are_let_in() -> None:
    harness = roomy(num_blocks=30, limits=limits())
    harness.add([40] * 40, max_tokens=30)
    harness.step()
    params = BeamParams(width=4)
    leader = harness.add(PROMPT, max_tokens=20, starts_now=True, beams=params)
    assert leader in harness.refused
    assert harness.add(PROMPT, max_tokens=20, starts_now=True) not in harness.refused


def advance_all(search: BeamSearch) -> None:
    while not search.is_over:
        texts = [[7, *(node.token_id for node in beam.path())] for beam in search.beams]
        search.advance([score_next(text, search.num_candidates) for text in texts])


def spelled(letters: str) -> Callable[[int], bytes]:
    return lambda token_id: letters[token_id % len(letters)].encode()


def test_a_stop_text_ends_a_beam_wherever_tokens_cut_it() -> None:
    params = BeamParams(width=3, stop_texts=("ab", "ca"))
    search = BeamSearch(params, max_tokens=25, spell=spelled("abcdefg"))
    advance_all(search)
    for ended in search.ended:
        text = b"".join(spelled("abcdefg")(node.token_id) for node in ended.hypothesis.path())
        has_stop = [stop in text for stop in (b"ab", b"ca")]
        assert (ended.reason is FinishReason.STOP) == any(has_stop)
        assert b"ab" not in text[:-1]
        assert b"ca" not in text[:-1]
    assert any(ended.reason is FinishReason.STOP for ended in search.ended)


def test_no_stop_ends_a_beam_before_its_minimum() -> None:
    stops = frozenset(range(25))
    params = BeamParams(width=3, stop_texts=("a",))
    search = BeamSearch(
        params, max_tokens=9, min_tokens=4, stop_token_ids=stops, spell=spelled("ab")
    )
    advance_all(search)
    assert len(search.ended) == 3
    assert all(ended.hypothesis.num_tokens > 4 for ended in search.ended)


def test_shown_scores_are_those_of_tokens_that_were_sampled() -> None:
    search = BeamSearch(BeamParams(width=2), max_tokens=3, num_shown=1)
    advance_all(search)
    for ended in search.ended:
        path = ended.hypothesis.path()
        scores = [node.score for node in path]
        assert sum(score.logprob for score in scores if score) == pytest.approx(
            ended.hypothesis.logprob
        )
        assert all(score is not None and len(score.top_ids) == 1 for score in scores)
