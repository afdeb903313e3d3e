"""The parts that the state is made of: feed, prefix ring, arrivals, compact form, drain."""

import asyncio
import mmap

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.core.prefix_ring import NUM_KEPT, PrefixRing
from quire_engine.errors import RequestError
from quire_engine.protocol.messages import PrefixChunks
from quire_engine.protocol.state import write_compact
from quire_engine.server.arrivals import GatewayArrivals
from quire_engine.server.count_board import NUM_ARRIVALS, SEGMENT_BYTES, CountBoard
from quire_engine.server.drain import Drain
from quire_engine.server.schemas.control import ThresholdsBody
from quire_engine.server.state_feed import StateFeed


async def test_a_feed_wakes_all_who_wait_and_answers_at_once_what_is_known() -> None:
    feed = StateFeed()
    waiting = [asyncio.create_task(feed.wait_beyond(0, 60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    feed.bump()

    assert await asyncio.gather(*waiting) == [True] * 3
    assert await feed.wait_beyond(0, 60.0)
    assert not await feed.wait_beyond(1, 0.0)


def chunks(first: int, *names: str) -> PrefixChunks:
    return PrefixChunks(first_number=first, events=[(True, name) for name in names])


def test_a_reader_of_the_ring_gets_what_it_has_not_seen() -> None:
    ring = PrefixRing()
    ring.take(chunks(0, "a", "b"))
    ring.take(PrefixChunks(first_number=2, events=[(False, "a")]))

    assert ring.since(0) == (0, [("inserted", "a"), ("inserted", "b"), ("evicted", "a")])
    assert ring.since(2) == (2, [("evicted", "a")])
    assert ring.since(3) == (3, [])


def test_a_message_that_was_missed_is_a_gap_in_the_numbers() -> None:
    ring = PrefixRing()
    ring.take(chunks(0, "a"))
    ring.take(chunks(5, "f"))

    first, events = ring.since(1)
    assert first > 1
    assert events == [("inserted", "f")]
    ring.take(chunks(6, "g"))
    assert ring.since(first + 1) == (first + 1, [("inserted", "g")])


def test_a_core_that_died_is_a_gap_even_when_nothing_was_cached_since() -> None:
    ring = PrefixRing()
    ring.take(chunks(0, "a"))
    ring.clear()

    assert ring.since(1)[0] > 1
    ring.take(chunks(0, "a"))
    assert ring.since(2) == (2, [("inserted", "a")])


def test_who_comes_too_late_for_the_newest_events_gets_all_that_is_cached_now() -> None:
    ring = PrefixRing()
    for number in range(3 * NUM_KEPT):
        ring.take(chunks(number, str(number)))
    ring.take(PrefixChunks(first_number=3 * NUM_KEPT, events=[(False, "0"), (False, "7")]))

    for reader in (PrefixRing(ring.content()), ring):
        for number in (0, 5, NUM_KEPT):
            first, events = reader.since(number)
            assert first + len(events) == reader.next_number
            assert first != number or number == 0
            assert events == [("inserted", str(n)) for n in range(3 * NUM_KEPT) if n not in (0, 7)]


def test_what_is_cached_now_never_seems_to_follow_what_a_late_reader_knows() -> None:
    ring = PrefixRing()
    for number in range(3 * NUM_KEPT):
        ring.take(chunks(number, str(number)))
    for number in range(NUM_KEPT):
        ring.take(PrefixChunks(first_number=3 * NUM_KEPT + number, events=[(False, str(number))]))

    first, events = ring.since(2 * NUM_KEPT)  # as many as are cached lie between
    assert first != 2 * NUM_KEPT
    assert first + len(events) == ring.next_number
    assert set(events) < {("inserted", str(n)) for n in range(NUM_KEPT, 3 * NUM_KEPT)}


def test_a_counter_is_not_included_while_an_earlier_request_is_on_its_way() -> None:
    arrivals = GatewayArrivals(CountBoard.alone())
    with arrivals.until_sent("g", 5), arrivals.until_sent("g", 6):
        pass
    arrivals.settle("g", 6)

    assert arrivals.included({"g": 6, "h": 2}) == {"g": 4, "h": 2}
    arrivals.settle("g", 5)
    assert arrivals.included({"g": 6}) == {"g": 6}


def test_a_request_that_is_answered_early_is_not_on_its_way() -> None:
    arrivals = GatewayArrivals(CountBoard.alone())
    with pytest.raises(RequestError), arrivals.until_sent("g", 5):
        raise RequestError("no")
    with arrivals.until_sent("", 0):
        pass

    assert arrivals.included({"g": 6}) == {"g": 6}


def workers_arrivals(num: int) -> tuple[list[CountBoard], list[GatewayArrivals]]:
    memory = mmap.mmap(-1, num * SEGMENT_BYTES)
    boards = [CountBoard(memory, num_segments=num, own=own) for own in range(num)]
    return boards, [GatewayArrivals(board) for board in boards]


def test_a_counter_is_not_included_while_another_worker_has_an_earlier_request() -> None:
    boards, (first, second, third) = workers_arrivals(3)
    with first.until_sent("g", 5), second.until_sent("g", 3), third.until_sent("g", 6):
        pass
    third.settle("g", 6)
    for arrivals in (first, second, third):
        assert arrivals.included({"g": 6, "h": 2}) == {"g": 2, "h": 2}
    second.settle("g", 3)
    assert third.included({"g": 6}) == {"g": 4}
    boards[0].clear_gauges()  # as when its worker is killed
    assert third.included({"g": 6}) == {"g": 6}


arrival = st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 9))


@given(st.lists(st.tuples(st.booleans(), arrival), max_size=40))
def test_all_workers_include_the_same(steps: list[tuple[bool, tuple[int, str, int]]]) -> None:
    _, workers = workers_arrivals(3)
    pending: list[tuple[int, str, int]] = []
    for arrives, step in steps:
        if arrives:
            pending.append(step)
            with workers[step[0]].until_sent(step[1], step[2]):
                pass
        elif pending:
            worker, gateway, counter = pending.pop(step[2] % len(pending))
            workers[worker].settle(gateway, counter)
        expected = {}
        for gateway in "abc":
            counters = [counter for _, name, counter in pending if name == gateway]
            expected[gateway] = min([7, *(counter - 1 for counter in counters)])
        for arrivals in workers:
            assert arrivals.included(dict.fromkeys("abc", 7)) == expected


def test_more_gateways_than_places_take_turns() -> None:
    _, (first, second) = workers_arrivals(2)
    names = [f"gw-{number}" for number in range(NUM_ARRIVALS + 1)]
    for name in names:
        with first.until_sent(name, 5):
            pass
    included = second.included(dict.fromkeys(names, 9))
    assert sorted(included.values()) == [4] * NUM_ARRIVALS + [9]
    for name in names:
        first.settle(name, 5)
    with first.until_sent(names[-1], 3):
        pass
    assert second.included({names[-1]: 9}) == {names[-1]: 2}


def test_the_compact_state_is_all_zeros_before_there_is_a_core() -> None:
    assert write_compact(None, 3) == (
        "held=0;reserved=0;total=0;running=0;waiting=0;pressure=0.000;seq=3"
    )


async def test_a_drain_that_is_undone_ends_nothing() -> None:
    ended = asyncio.Event()
    drain = Drain(ended.set)
    drain.begin(0.0)
    drain.undo()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not drain.is_on
    assert not ended.is_set()

    drain.begin(3600.0)
    drain.begin(0.0)
    await asyncio.wait_for(ended.wait(), 10)
    assert drain.is_on


def test_thresholds_are_taken_whole_and_only_without_contradiction() -> None:
    body = {
        "admission": 0.9,
        "background": 0.5,
        "slo_time_to_first_token_seconds": None,
        "slo_time_per_output_token_seconds": 0.05,
        "max_queue_seconds": 30,
        "max_waiting_requests": 10,
    }
    made = msgspec.convert(body, ThresholdsBody).to_thresholds()
    assert made.admission == 0.9
    assert made.max_queue_seconds == 30.0

    with pytest.raises(RequestError, match=r"background: 0\.95 is above admission, 0\.9"):
        msgspec.convert(body | {"background": 0.95}, ThresholdsBody).to_thresholds()
    for wrong in (
        {"admission": float("nan")},
        {"admission": 0},
        {"admission": 1.01},
        {"max_queue_seconds": float("inf")},
        {"slo_time_to_first_token_seconds": 0},
        {"slo_time_per_output_token_seconds": float("nan")},
        {"max_waiting_requests": 0},
        {"max_waiting_requests": 1.5},
        {"admision": 0.9},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(body | wrong, ThresholdsBody)
