"""The sum as arrays is the sum of each request's prediction, as of its newest token."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.kvcache.block import Block, BlockHash
from quire_engine.kvcache.table import BlockTable
from quire_engine.profiles.output_length_by_prompt import OutputLengthByPrompt
from quire_engine.protocol.cost import HORIZONS, OccupancyCurve, predict_occupancy
from quire_engine.protocol.messages import Priority
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.occupancy_table import OccupancyTable
from quire_engine.scheduler.request import Request

BLOCK_SIZE = 16


def learnt_lengths() -> OutputLengthByPrompt:
    lengths, source = OutputLengthByPrompt(), random.Random(0)
    for _ in range(500):
        prompt = source.randint(1, 3000)
        output = source.randint(1, 2 * prompt)
        lengths.add(prompt, output, ended=True, number=lengths.begin())
    lengths.refresh(())
    return lengths


LENGTHS = learnt_lengths()


def build_request(
    name: str, prompt: int, generated: int, *, priority: Priority = Priority.INTERACTIVE
) -> Request:
    request = Request(
        request_id=name,
        client_id="c",
        prompt_token_ids=[1] * prompt,
        sampling=SamplingParams(max_tokens=1700),
        priority=priority,
        seniority=(int(priority), 0.0, 0),
        seed=0,
        max_length=prompt + 1700,
        table=BlockTable(BlockHash(b"")),
    )
    request.token_ids += [2] * generated
    return request


def one_by_one(requests: list[Request], block_size: int = BLOCK_SIZE) -> OccupancyCurve:
    return OccupancyCurve(
        predict_occupancy(
            private_tokens=len(request.token_ids),
            block_size=block_size,
            num_generated=len(request.token_ids) - request.num_prompt_tokens,
            max_remaining_tokens=request.max_length - len(request.token_ids),
            survival=LENGTHS.curve(request.num_prompt_tokens).survival,
        )
        for request in requests
    )


def assert_equal(curve: OccupancyCurve, expected: OccupancyCurve) -> None:
    assert curve.alive == pytest.approx(expected.alive)
    assert curve.mean == pytest.approx(expected.mean)
    assert curve.variance == pytest.approx(expected.variance, abs=1e-6)


arrivals = st.tuples(st.integers(1, 3000), st.integers(0, 800), st.booleans())
steps = st.tuples(
    st.lists(arrivals, max_size=3),
    st.lists(st.integers(0, 99), max_size=2),  # who ends
    st.lists(st.integers(0, 99), max_size=2),  # who pauses
    st.integers(1, 20),  # tokens that all others get
    st.booleans(),  # whether lengths are estimated anew
)


@settings(deadline=None)  # a busy machine may stop anywhere
@given(st.lists(steps, min_size=1, max_size=20), st.sampled_from([1, 5, 16, 32, 100]))
def test_the_sum_is_that_of_each_alone_whatever_came_went_grew_and_paused(
    schedule: list[Any], block_size: int
) -> None:
    table = OccupancyTable(LENGTHS, block_size=block_size)
    present: list[Request] = []
    for number, (arriving, ending, pausing, num_tokens, is_anew) in enumerate(schedule):
        for prompt, generated, is_background in arriving:
            priority = Priority.BACKGROUND if is_background else Priority.INTERACTIVE
            present.append(build_request(str(number), prompt, generated, priority=priority))
            table.add(present[-1])
        planned = [r for place, r in enumerate(present) if place not in pausing]
        ended = [present.pop(place) for place in ending if place < len(present)]
        for request in ended:  # between plan and postprocessing: the step's news come all the same
            table.remove(request)
        for request in planned:
            request.token_ids += [2] * num_tokens
        table.grow(planned, num_tokens)
        if is_anew:
            table.update()
        table.check_invariants(present)
        assert_equal(table.total(), one_by_one(present, block_size))
        background = [request for request in present if request.level is Priority.BACKGROUND]
        assert_equal(table.of_background(), one_by_one(background, block_size))


def test_tokens_that_were_exchanged_for_others_are_counted_anew() -> None:
    table = OccupancyTable(LENGTHS, block_size=BLOCK_SIZE)
    requests = [build_request(name, 100, 10) for name in "ab"]
    for request in requests:
        table.add(request)
    requests[0].token_ids += [2] * 30
    del requests[1].token_ids[-5:]
    table.recount(requests)
    table.check_invariants(requests)
    assert_equal(table.total(), one_by_one(requests))


def test_a_token_that_the_sum_was_not_told_of_is_found() -> None:
    table = OccupancyTable(LENGTHS, block_size=BLOCK_SIZE)
    request = build_request("r", 100, 10)
    table.add(request)
    request.token_ids.append(2)
    with pytest.raises(RuntimeError, match="other tokens"):
        table.check_invariants([request])


def test_an_aged_request_is_background_no_more() -> None:
    table = OccupancyTable(LENGTHS, block_size=BLOCK_SIZE)
    request = build_request("r", 100, 10, priority=Priority.BACKGROUND)
    table.add(request)
    assert_equal(table.of_background(), one_by_one([request]))
    request.seniority = (int(Priority.INTERACTIVE), 0.0, 0)
    table.promote(request)
    assert_equal(table.of_background(), OccupancyCurve())
    assert_equal(table.total(), one_by_one([request]))


def test_a_request_ends_at_its_max_tokens() -> None:
    table = OccupancyTable(LENGTHS, block_size=BLOCK_SIZE)
    table.add(build_request("r", 100, 1700 - 64))
    total = table.total()
    assert total.alive[HORIZONS.index(32)] > 0.0
    assert total.alive[HORIZONS.index(64)] == total.mean[HORIZONS.index(64)] == 0.0


def test_blocks_that_two_hold_count_once() -> None:
    table = OccupancyTable(LENGTHS, block_size=BLOCK_SIZE)
    shared = Block(1)
    shared.ref_count = 2
    for name in "ab":
        request, own = build_request(name, 32, 0), Block(2)
        own.ref_count = 1
        request.table.blocks = [shared, own]
        table.add(request)
    assert table.total().mean[0] == pytest.approx(3.0)
    shared.ref_count = 1
    table.update()
    assert table.total().mean[0] == pytest.approx(4.0)
