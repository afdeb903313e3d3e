"""Who waits for a service that has no engine."""

from itertools import count
from typing import Any

import msgspec
import pytest

from quire_gateway.choosing.queue import Waiting
from quire_gateway.errors import ApiError
from quire_gateway.routing.access import NOBODY
from quire_gateway.serving.service import Service, Ticket
from tests.unit.gateway.builders import FAST, demand, endpoint, routing, state

LAST = {
    "tokens_per_block": 16,
    "num_blocks": 1000,
    "max_model_len": 2048,
    "slots": 8,
    "step_time": msgspec.to_builtins(FAST),
}


def service(**changes: Any) -> Service:
    return Service(
        routing(**changes),
        next_counter=count(1).__next__,
        clock=lambda: 0.0,
        chance=lambda: 0.0,
        stale_seconds=3.0,
        call_soon=lambda *_: None,
    )


def ask(one: Service, deadline_seconds: float) -> Waiting:
    wanted = demand(deadline_seconds=deadline_seconds, max_tokens=200)
    ticket = Ticket(NOBODY, wanted, arrived_at=0.0, has_deadline=True)
    answer = one.ask(ticket, set(), lambda _: None)
    assert isinstance(answer, Waiting)
    return answer


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
    engine = endpoint(0, state())
    one.index.join()
    one.add(engine)
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
