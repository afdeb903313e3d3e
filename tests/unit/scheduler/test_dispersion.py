"""The scatter of sums, learnt from what became of those that ran."""

import random

import pytest

from quire_engine.kvcache.block import BlockHash
from quire_engine.kvcache.table import BlockTable
from quire_engine.protocol.messages import FinishReason, Priority
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.dispersion import LARGEST_ERROR, Dispersion, Expectation
from quire_engine.scheduler.request import Request

NUM_RUNNING = 40
AHEAD = 64


def build_request() -> Request:
    return Request(
        request_id="r",
        client_id="c",
        prompt_token_ids=[1] * 10,
        sampling=SamplingParams(max_tokens=1000),
        priority=Priority.INTERACTIVE,
        seniority=(0, 0.0, 0),
        seed=0,
        max_length=1010,
        table=BlockTable(BlockHash(b"")),
    )


def expect_half(requests: list[Request]) -> list[Expectation]:
    return [Expectation(r, len(r.token_ids) + AHEAD, alive=0.5, size=8.0) for r in requests]


def end(request: Request, reason: FinishReason = FinishReason.STOP) -> None:
    request.finish_reason = reason


def run_on(request: Request) -> None:
    request.token_ids += [1] * (AHEAD + 1)


def learn(dispersion: Dispersion, probabilities: list[float]) -> None:
    """Let groups be expected to end by half, and to end with these probabilities instead."""
    source = random.Random(0)
    for probability in probabilities:
        requests = [build_request() for _ in range(NUM_RUNNING)]
        dispersion.note(expect_half(requests))
        for request in requests:
            (end if source.random() < probability else run_on)(request)
        dispersion.settle()


def test_independent_requests_scatter_as_predicted() -> None:
    dispersion = Dispersion()
    learn(dispersion, [0.5] * 300)
    assert 0.6 < dispersion.factor < 1.5


def test_requests_that_end_together_scatter_more() -> None:
    dispersion = Dispersion()
    learn(dispersion, [0.35, 0.65] * 150)
    assert dispersion.factor > 2.0


def test_it_forgets() -> None:
    dispersion = Dispersion()
    learn(dispersion, [0.2, 0.8] * 50)
    excited = dispersion.factor
    learn(dispersion, [0.5] * 300)
    assert dispersion.factor < excited / 3


def test_one_surprise_counts_within_bounds() -> None:
    dispersion = Dispersion()
    learn(dispersion, [1.0])
    assert 1.0 < dispersion.factor <= LARGEST_ERROR / 2


def test_nothing_is_learnt_before_all_is_known() -> None:
    dispersion = Dispersion()
    requests = [build_request() for _ in range(NUM_RUNNING)]
    dispersion.note(expect_half(requests))
    for request in requests[1:]:
        end(request)
    dispersion.settle()
    assert dispersion.factor == 1.0
    run_on(requests[0])
    dispersion.settle()
    assert dispersion.factor > 1.0


def test_requests_that_were_cut_off_say_nothing() -> None:
    """20 of 40 ended and 20 ran on, as expected; 40 more were aborted."""
    dispersion = Dispersion()
    requests = [build_request() for _ in range(2 * NUM_RUNNING)]
    dispersion.note(expect_half(requests))
    for index, request in enumerate(requests):
        if index >= NUM_RUNNING:
            end(request, FinishReason.ABORT)
        elif index % 2:
            end(request)
        else:
            run_on(request)
    dispersion.settle()
    assert dispersion.factor == pytest.approx(0.95 * 4 / (0.95 * 4 + 1))


def test_where_all_were_cut_off_nothing_is_learnt() -> None:
    dispersion = Dispersion()
    requests = [build_request() for _ in range(NUM_RUNNING)]
    dispersion.note(expect_half(requests))
    for request in requests:
        end(request, FinishReason.ABORT)
    dispersion.settle()
    assert dispersion.factor == 1.0


def test_a_few_requests_are_no_measure() -> None:
    dispersion = Dispersion()
    requests = [build_request() for _ in range(6)]
    dispersion.note(expect_half(requests))
    for request in requests:
        end(request)
    dispersion.settle()
    assert dispersion.factor == 1.0
