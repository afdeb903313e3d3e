"""A request's claim to an engine, by what becomes of its ways there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.routing.access import NOBODY
from quire_gateway.serving.claim import Court, tell_nobody
from quire_gateway.serving.fleet import Fleet
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.relay import Outcome
from quire_gateway.serving.service import Service
from quire_gateway.serving.wish import Wish
from tests.unit.gateway.builders import GATEWAY, routing, state

NOWHERE = "127.0.0.1:1"


@pytest.fixture
async def court() -> AsyncIterator[Court]:
    """Of a service with one engine, whose state tests tell."""
    fleet = Fleet(
        gateway=GATEWAY,
        root_secret=None,
        chance=lambda: 0.0,
        stale_seconds=1e9,
        silence_seconds=1e9,
        hang_seconds=30.0,
    )
    fleet.update([routing(engines=[{"address": NOWHERE}])])
    clock = asyncio.get_running_loop().time
    yield Court(fleet, GatewayMetrics(), GATEWAY.encode(), clock)
    await fleet.close()


def the_service(court: Court) -> Service:
    (one,) = court.fleet.services.values()
    return one


def wish(now: float) -> Wish:
    """100 tokens, as far as a gateway can tell."""
    return Wish(now, 100, 10, 1, False, None, None, True, False, ())


async def test_who_is_refused_is_told_how_long_its_prompt_is(court: Court) -> None:
    service, now = the_service(court), court.clock()
    (engine,) = service.endpoints
    engine.hear(state(held=600, running=1), now)
    claim = court.claim(service, NOBODY, wish(now), tell_nobody)
    assert claim.open() is not None

    refused = Outcome("refused", 429, "refused", usage=TokenUsage(6000, 0))
    assert claim.settle(refused, None) is None
    engine.beat(now)  # what was refused is forgotten, and the prompt's length is not
    service.dispatch()
    assert len(service.queue) == 1
    assert service.queue.total_cost >= 6000 / 16
    assert service.arrivals.tokens_per_estimated == 5.0
    claim.cancel(was_sent=False)


async def test_room_of_a_client_that_left_is_free_when_the_engine_says_so(court: Court) -> None:
    service, now = the_service(court), court.clock()
    (engine,) = service.endpoints
    engine.hear(state(held=100, running=1), now)
    claim = court.claim(service, NOBODY, wish(now), tell_nobody)
    way = claim.open()
    assert way is not None
    engine.hear(state(held=108, running=2, counter=way.counter), now)
    claim.cancel(was_sent=True)
    assert engine.figures is not None
    assert engine.figures.free_blocks == 950 - 108
    engine.hear(state(held=100, running=1, counter=way.counter), now)
    assert engine.figures is not None
    assert engine.figures.free_blocks == 950 - 100
