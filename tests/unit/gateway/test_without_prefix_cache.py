"""Engines that keep no prefixes attract no request by its prefix, alone and beside others."""

from collections import Counter

import pytest

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.choose import choose
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.routing.access import NOBODY
from quire_gateway.serving.ticket import Grant, Ticket
from tests.unit.gateway.builders import demand, endpoint, state
from tests.unit.gateway.test_waiting_room import service, with_engine

CACHES = state(held=10, running=1)
KEEPS_NONE = state(held=10, running=1, has_prefix_cache=False)


def choose_by(chance: float, engines: list[Endpoint], prompt: Demand) -> int:
    """The slot of who is chosen, with nothing cached anywhere."""
    chosen = choose(engines, prompt, {}, now=0.0, chance=lambda: chance)
    assert chosen is not None
    return chosen.slot


@pytest.mark.parametrize("heard", [CACHES, KEEPS_NONE])
def test_a_prompt_is_expected_only_where_it_is_kept(heard: EngineState) -> None:
    one = service()
    with_engine(one, endpoint(0, heard))
    ticket = Ticket(NOBODY, demand(chunks=(1, 2)), arrived_at=0.0)
    grant = one.ask(ticket, set(), lambda _: None)
    assert isinstance(grant, Grant)
    assert one.index.hits((1, 2)) == ({0: 2} if heard is CACHES else {})
    one.release(grant, ticket.demand)
    assert one.index.hits((1, 2)) == {}


def test_equal_prompts_share_no_blocks_there() -> None:
    engine, prompt = endpoint(0, KEEPS_NONE), demand(num_prompt_tokens=1600, chunks=(1, 2))
    taken = [engine.take(counter, prompt, 0, 1600.0, 0.0) for counter in (1, 2)]
    engine.hear(state(held=220, running=2, counter=2, has_prefix_cache=False), 0.0)
    before = engine.own_load.num_ended_blocks
    engine.end(1)  # the other one holds none of its blocks
    assert engine.own_load.num_ended_blocks - before == pytest.approx(taken[0])
    assert engine.num_held(prompt.chunks, 2) == 0


def test_equal_prompts_meet_at_those_that_keep_them() -> None:
    engines = [endpoint(n, KEEPS_NONE if n % 2 else CACHES) for n in range(4)]
    chosen = Counter[int]()
    for prefix in range(200):
        prompt = demand(chunks=(prefix * 0x9E3779B97F4A7C15 & (1 << 64) - 1,))
        homes = {choose_by(chance, engines, prompt) for chance in (0.1, 0.9)}
        assert len(homes) == 1
        chosen += Counter(homes)
    assert set(chosen) == {0, 2}


def test_where_none_keeps_them_equal_prompts_spread() -> None:
    engines = [endpoint(n, KEEPS_NONE) for n in range(2)]
    prompt = demand(chunks=(1,))
    assert {choose_by(chance, engines, prompt) for chance in (0.1, 0.9)} == {0, 1}


@pytest.mark.parametrize("heard", [CACHES, KEEPS_NONE])
def test_no_copy_is_counted_where_none_is_made(heard: EngineState) -> None:
    home, other = endpoint(0, CACHES), endpoint(1, heard)
    prompt = demand(num_prompt_tokens=4000, max_tokens=1, chunks=tuple(range(10)))
    home.send(1, 1.0, 6000.0, 0.0)  # longer than its prompt takes, and not thrice as long
    chosen = choose([home, other], prompt, {0: 9}, now=0.0, chance=lambda: 0.9)
    assert chosen is (home if heard is CACHES else other)
