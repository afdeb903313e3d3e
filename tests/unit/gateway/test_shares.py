"""Parts of the traffic by accelerator, and what is counted of requests."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.protocol.token_usage import (
    TokenUsage,
    read_usage,
    take_usage,
    write_usage,
    write_usage_comment,
)
from quire_gateway.choosing.choose import choose
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.shares import TrafficShares
from quire_gateway.serving.arrivals import Arrivals
from tests.unit.gateway.builders import FAST, SLOW, demand, endpoint, state

Counts = st.integers(0, 10**12)


def faster_by_lean(shares: TrafficShares, seconds: dict[str, float]) -> str:
    """Who is chosen: as `choose` does it."""
    return min(seconds, key=lambda name: seconds[name] * shares.lean(name).factor)


@pytest.mark.parametrize("planned", [0.2, 0.5, 0.9])
def test_traffic_follows_the_parts_that_were_planned(planned: float) -> None:
    shares, chance = TrafficShares(), random.Random(1)
    shares.plan({"l4": planned, "h100": 1.0 - planned})
    sent = {"l4": 0.0, "h100": 0.0}
    for _ in range(4000):
        name = faster_by_lean(shares, {"l4": 1.4, "h100": 1.0})
        size = chance.expovariate(1 / 500)
        shares.send(name, size)
        sent[name] += size
    assert sent["l4"] / sum(sent.values()) == pytest.approx(planned, abs=0.1)


def test_a_plan_sends_nobody_where_it_takes_twice_as_long() -> None:
    shares = TrafficShares()
    shares.plan({"l4": 0.5, "h100": 0.5})
    for _ in range(4000):
        shares.send("h100", 500.0)
    assert faster_by_lean(shares, {"l4": 2.0, "h100": 1.0}) == "h100"


@pytest.mark.parametrize("plan", [{}, {"l4": None, "h100": None}, {"l4": 0.5, "h100": None}])
def test_without_a_plan_for_several_nothing_leans(plan: dict[str, float | None]) -> None:
    shares = TrafficShares()
    shares.plan(plan)
    for _ in range(100):
        shares.send("l4", 100.0)
    assert shares.lean("l4").factor == shares.lean("h100").factor == 1.0


def test_a_new_plan_begins_anew_and_the_same_one_does_not() -> None:
    shares = TrafficShares()
    for _ in range(2):
        shares.plan({"l4": 0.5, "h100": 0.5})
        shares.send("l4", 100.0)
    leaning = shares.lean("l4").factor
    assert leaning > 1.0 > shares.lean("h100").factor
    shares.plan({"l4": 0.5, "h100": 0.5})
    assert shares.lean("l4").factor == leaning
    shares.plan({"l4": 0.4, "h100": 0.6})
    assert shares.lean("l4").factor == 1.0


@given(Counts, Counts, Counts)
def test_usage_is_read_as_it_was_written(prompt: int, output: int, cached: int) -> None:
    usage = TokenUsage(prompt, output, cached)
    assert read_usage(write_usage(usage)) == usage
    assert read_usage(write_usage(usage) + b";new=5") == usage
    before, after = b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"
    comment = write_usage_comment(usage)
    assert take_usage(before + comment + after) == (before + after, usage)


@pytest.mark.parametrize("text", [None, b"", b"prompt=1", b"prompt=x;completion=2", b"prompt=-1"])
def test_what_is_no_usage_is_none(text: bytes | None) -> None:
    assert read_usage(text) is None


def test_a_text_that_looks_like_usage_is_no_usage() -> None:
    events = b'data: {"text": "\\n: x-quire-usage prompt=1;completion=2"}\n\n'
    assert take_usage(events) == (events, None)


def test_the_estimate_of_prompts_is_learnt_within_bounds() -> None:
    arrivals = Arrivals(0.0)
    assert arrivals.tokens_per_estimated == 1.0
    for _ in range(500):
        arrivals.end(1000, TokenUsage(1500, 10))
    assert arrivals.tokens_per_estimated == pytest.approx(1.5, rel=0.05)
    for _ in range(2000):
        arrivals.end(1, TokenUsage(100_000, 10))
    assert arrivals.tokens_per_estimated == 5.0


def test_how_far_estimates_of_prompts_are_wrong_is_learnt() -> None:
    arrivals = Arrivals(0.0)
    for _ in range(200):
        arrivals.learn(1000, 1300)
        arrivals.learn(1000, 700)
    assert arrivals.prompt_error == pytest.approx(0.3, rel=0.1)
    for _ in range(100):
        arrivals.learn(1000, 1000)
    assert arrivals.prompt_error < 0.1


def test_a_prompt_of_uncertain_length_has_more_kept_for_it() -> None:
    sure, unsure = demand(), demand(prompt_error=0.5)
    assert unsure.blocks(16) == sure.blocks(16)
    assert unsure.blocks_and_deviation(16)[1] > sure.blocks_and_deviation(16)[1]
    unsure.count_prompt(1000)
    assert unsure.blocks_and_deviation(16) == demand(num_prompt_tokens=1000).blocks_and_deviation(
        16
    )


def test_buckets_end_at_their_bounds() -> None:
    arrivals = Arrivals(10.0)
    for tokens in (1, 128, 129, 10**9):
        arrivals.arrive(tokens, is_retry=False)
        arrivals.end(tokens, TokenUsage(tokens, tokens, 1))
    arrivals.arrive(1, is_retry=True)
    arrivals.refuse("deadline")
    for reason, is_promised in (("queue_full", True), ("deadline", False), ("suspended", True)):
        arrivals.refuse(reason, is_promised=is_promised)
    report = arrivals.report(15.0)
    assert report.arrivals == [2, 1, 0, 0, 0, 1]
    assert [row[0] for row in report.ended] == [1, 0, 0, 0, 0, 0]
    assert report.ended[0][1] == 1
    assert (report.num_retries, report.seconds) == (1, 5.0)
    assert report.refusals == {"deadline": 2, "queue_full": 1, "suspended": 1}
    assert report.num_unserved == 2
    assert report.cached_tokens == 4


def test_parts_decide_between_engines_with_room_and_no_more() -> None:
    fast, slow = endpoint(0, state(step_time=FAST)), endpoint(1, state(step_time=SLOW))

    def chosen() -> Endpoint | None:
        return choose([fast, slow], demand(), {}, now=0.0, chance=lambda: 0.0)

    assert chosen() is fast
    slow.lean.factor, fast.lean.factor = 0.25, 4.0
    assert chosen() is slow
    slow.hear(state(held=949, running=1, step_time=SLOW), 0.0)
    assert chosen() is fast
