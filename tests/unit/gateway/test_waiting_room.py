"""Who waits for a service that has no engine."""

from itertools import count
from typing import Any

import msgspec
import pytest

from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.queue import Waiting
from quire_gateway.errors import ApiError
from quire_gateway.routing.access import NOBODY
from quire_gateway.serving.service import Service
from quire_gateway.serving.ticket import Grant, Ticket
from tests.unit.gateway.builders import FAST, demand, endpoint, routing, state

LAST = {
    "tokens_per_block": 16,
    "num_blocks": 1000,
    "max_model_len": 2048,
    "slots": 8,
    "step_time": msgspec.to_builtins(FAST),
}


def service(now: list[float] | None = None, **changes: Any) -> Service:
    clock = now or [0.0]
    return Service(
        routing(**changes),
        next_counter=count(1).__next__,
        clock=lambda: clock[0],
        chance=lambda: 0.0,
        stale_seconds=3.0,
        call_soon=lambda *_: None,
    )


def ask(one: Service, deadline_seconds: float) -> Waiting:
    wanted = demand(deadline_seconds=deadline_seconds, max_tokens=200)
    ticket = Ticket(NOBODY, wanted, arrived_at=0.0, own_deadline=deadline_seconds)
    answer = one.ask(ticket, set(), lambda _: None)
    assert isinstance(answer, Waiting)
    return answer


def with_engine(one: Service, engine: Endpoint) -> Endpoint:
    one.index.join()
    one.add(engine)
    return engine


def num_let_wait(one: Service, deadline_seconds: float) -> tuple[int, ApiError]:
    """How many may wait before one is told to come again."""
    for number in range(100):
        try:
            ask(one, deadline_seconds)
        except ApiError as error:
            return number, error
    raise AssertionError("all may wait")


def test_as_many_wait_for_a_first_engine_as_one_answers_in_time() -> None:
    soon, refusal = num_let_wait(service(last_engine=LAST), 3.0)
    assert soon >= 8
    assert (refusal.status, refusal.reason) == (503, "no_engine")
    later, refusal = num_let_wait(service(last_engine=LAST), 6.0)
    assert later > soon
    assert refusal.retry_after_seconds is not None
    assert refusal.retry_after_seconds > 5.0


def test_an_engine_that_was_there_says_more_than_the_document() -> None:
    one = service(last_engine=LAST)
    assert one.max_model_len == 2048
    engine = with_engine(one, endpoint(0, state()))
    one.hear(engine, state())
    one.endpoints.remove(engine)
    assert one.max_model_len == 8192
    assert num_let_wait(one, 0.001)[0] in (63, 64, 65)  # its seats


def test_where_nothing_was_ever_known_all_wait() -> None:
    one = service()
    assert one.max_model_len == 0
    for _ in range(100):
        ask(one, 1.0)
    with pytest.raises(ApiError) as full:
        ask(one, 1.0)
    assert full.value.retry_after_seconds == 5.0


@pytest.mark.parametrize(("asked", "leaves_at"), [(60.0, 60.0), (1.0, 1.0), (None, 300.0)])
def test_without_an_engine_only_the_deadline_that_was_asked_for_counts(
    asked: float | None, leaves_at: float
) -> None:
    """And that of the service's promise when there is one again."""
    wanted = demand(deadline_seconds=1.0)
    ticket = Ticket(NOBODY, wanted, arrived_at=0.0, own_deadline=asked)
    waiting = service().ask(ticket, set(), lambda _: None)
    assert isinstance(waiting, Waiting)
    assert waiting.leaves_at == leaves_at
    assert wanted.deadline_seconds == asked


def test_an_engine_that_is_left_alone_is_not_waited_for_as_for_a_first_one() -> None:
    one = service()
    engine = with_engine(one, endpoint(0, state()))
    for _ in range(3):
        engine.fail(0.0)
    waiting = one.ask(Ticket(NOBODY, demand(), arrived_at=0.0), set(), lambda _: None)
    assert isinstance(waiting, Waiting)
    assert waiting.leaves_at == 30.0  # the longest wait for room
    engine.lose()
    waiting = one.ask(Ticket(NOBODY, demand(), arrived_at=0.0), set(), lambda _: None)
    assert isinstance(waiting, Waiting)
    assert waiting.leaves_at == 300.0


def test_no_request_goes_again_where_it_was_not_answered() -> None:
    now = [0.0]
    one = service(now)
    first = with_engine(one, endpoint(0, state()))
    ticket = Ticket(NOBODY, demand(), arrived_at=0.0, hung_at=frozenset({first}))
    with pytest.raises(ApiError) as failed:
        one.ask(ticket, {first}, lambda _: None)
    assert failed.value.status == 502

    second = with_engine(one, endpoint(1, state()))
    second.fail(0.0)
    second.fail(0.0)
    assert isinstance(one.ask(ticket, {first}, lambda _: None), Waiting)
    one.dispatch()
    assert len(one.queue) == 1
    now[0] = 20.0  # it has waited long enough to be let wait at an engine
    for each in (first, second):
        each.beat(20.0)
    one.dispatch()
    assert len(one.queue) == 0
    assert (first.num_in_flight, second.num_in_flight) == (0, 1)


def test_what_an_engine_refused_is_not_expected_in_its_cache() -> None:
    one = service()
    with_engine(one, endpoint(0, state()))
    tickets = [Ticket(NOBODY, demand(chunks=(1, n)), arrived_at=0.0) for n in (2, 3)]
    first, second = (one.ask(ticket, set(), lambda _: None) for ticket in tickets)
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    one.release(first, tickets[0].demand)
    assert one.index.hits((1, 3)) == {0: 2}
    one.release(second, tickets[1].demand)
    assert one.index.hits((1, 3)) == {}


def test_those_that_find_room_are_found_behind_many_that_do_not() -> None:
    one = service()
    engine = with_engine(one, endpoint(0, state(held=900, running=9)))
    big = [demand(num_prompt_tokens=4000, chunks=(n, n)) for n in range(100, 140)]
    for wanted in big:
        one.ask(Ticket(NOBODY, wanted, arrived_at=0.0), set(), lambda _: None)
    small = Ticket(NOBODY, demand(num_prompt_tokens=16, max_tokens=1), arrived_at=0.0)
    assert isinstance(one.ask(small, set(), lambda _: None), Waiting)
    one.dispatch()
    assert engine.num_in_flight == 1
    assert len(one.queue) == len(big)


def test_an_engine_that_refused_is_not_asked_for_as_much_again() -> None:
    """As much as the request takes there, which is less than it is."""
    one = service()
    engine = with_engine(one, endpoint(0, state(held=100, running=9)))
    engine.send(1000, 0.0, 0.0, 0.0, chunks=(1, 2))
    engine.hear(state(held=100, running=9, counter=1000), 0.0)
    one.index.expect(0, (1, 2), 0.0)
    ticket = Ticket(NOBODY, demand(num_prompt_tokens=1600, chunks=(1, 2)), arrived_at=0.0)
    grant = one.ask(ticket, set(), lambda _: None)
    assert isinstance(grant, Grant)
    assert grant.num_blocks < 20 < ticket.demand.blocks(16)
    engine.refuse(grant.num_blocks)
    assert isinstance(one.ask(ticket, set(), lambda _: None), Waiting)
