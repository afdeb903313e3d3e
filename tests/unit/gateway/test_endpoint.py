"""What a gateway believes of one engine."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.retry import predict_wait
from tests.unit.gateway.builders import demand, endpoint, state


def free_and_num(one: Endpoint) -> tuple[int, int]:
    figures = one.figures
    assert figures is not None
    return round(figures.free_blocks), figures.num_requests


def test_what_was_sent_counts_until_the_state_has_it() -> None:
    one = endpoint(heard=state(held=100))
    one.send(7, num_blocks=50.0, num_prompt_tokens=400.0, now=0.0)
    assert free_and_num(one) == (950 - 150, 1)

    one.hear(state(held=150, running=1, counter=7), 1.0)
    assert free_and_num(one) == (800, 1)

    one.end(7)
    assert free_and_num(one) == (850, 0)


def test_what_was_refused_gives_no_room_back() -> None:
    one = endpoint(heard=state(held=100))
    one.send(7, num_blocks=50.0, num_prompt_tokens=400.0, now=0.0)
    one.hear(state(held=100, counter=7), 1.0)  # it came, and nothing is held for it
    one.end(7, gives_back=False)
    assert free_and_num(one) == (850, 0)


def test_no_more_is_given_back_than_was_held() -> None:
    one = endpoint()
    for counter in (1, 2):
        one.send(counter, num_blocks=50.0, num_prompt_tokens=400.0, now=0.0)
    one.hear(state(held=40, running=2, counter=2), 1.0)  # less than was predicted
    one.end(1)  # they share what a gateway does not know of: the other one keeps it
    assert free_and_num(one) == (910, 1)
    one.end(2)
    assert free_and_num(one) == (950, 0)


def test_what_others_share_stays_when_who_came_first_ends() -> None:
    one = endpoint()
    chunks = (1, 2, 3, 4)
    one.send(1, 44.0, 640.0, 0.0, chunks=chunks, prompt_blocks=40.0)
    one.hear(state(held=44, running=1, counter=1), 1.0)
    assert one.num_held((1, 2, 5, 6), 4) == 2
    assert one.num_held((5, 6), 2) == 0
    one.send(
        *(2, 24.0, 320.0, 1.0), chunks=(1, 2, 5, 6), num_shared_blocks=20.0, prompt_blocks=40.0
    )
    assert free_and_num(one) == (950 - 68, 2)
    one.end(1)
    assert free_and_num(one) == (950 - 44, 1)
    assert one.num_held(chunks, 4) == 0  # the second one's blocks are not counted there yet
    one.hear(state(held=44, running=1, counter=2), 2.0)
    one.end(2)
    assert free_and_num(one) == (950, 0)


def test_as_much_is_kept_for_what_may_grow_as_the_engine_keeps() -> None:
    one = endpoint(heard=state(z=2.0))
    for counter in (1, 2):
        one.send(counter, 50.0, 400.0, 0.0, deviation=15.0)
    assert free_and_num(one) == (950 - 100 - round(2.0 * 15.0 * 2**0.5), 2)
    one.end(1)
    assert free_and_num(one) == (950 - 50 - 30, 1)


def seconds_ahead(heard: EngineState) -> float:
    figures = endpoint(heard=heard).figures
    assert figures is not None
    return figures.queue_seconds


def test_prompts_that_are_being_computed_are_ahead_too() -> None:
    one_prompt = seconds_ahead(state(held=10, running=1, num_prompt_tokens_ahead=1000))
    assert one_prompt > 0
    assert seconds_ahead(state(queued=50, num_prompt_tokens_ahead=2000)) > one_prompt
    # an engine of before tells only of blocks that wait
    assert seconds_ahead(state(held=10, running=1)) == 0
    assert seconds_ahead(state(queued=50)) > 0


def test_prompts_are_worked_off_between_two_states() -> None:
    one = endpoint(heard=state(held=10, running=1))
    figures = one.figures
    assert figures is not None
    second = 1.0 / figures.seconds_per_prompt_token
    one.send(1, 1.0, second, 5.0)
    assert one.busy_until == pytest.approx(6.0, rel=0.05)
    one.send(2, 1.0, second, 5.5)
    assert one.busy_until == pytest.approx(7.0, rel=0.05)
    one.send(3, 1.0, second, 9.0)
    assert one.busy_until == pytest.approx(10.0, rel=0.05)

    one.hear(state(held=10, running=1, counter=3), 9.2)  # it has computed all of them
    assert one.busy_until == pytest.approx(9.2)


def test_small_steps_make_prompts_slow() -> None:
    def of(max_step_tokens: int | None) -> float:
        figures = endpoint(heard=state(max_step_tokens=max_step_tokens)).figures
        assert figures is not None
        return figures.seconds_per_prompt_token

    assert of(256) > of(8192) == of(None)


def test_who_comes_back_after_failures_is_tried_with_few_requests_until_it_answers() -> None:
    one = endpoint()
    one.fail(0.0)
    one.fail(0.0)
    one.beat(1.0)
    assert one.is_eligible(1.0, 3.0)
    one.send(1, 1.0, 1.0, 1.0)
    assert not one.is_eligible(1.0, 3.0)
    one.beat(9.0)
    assert one.is_eligible(9.0, 3.0)
    one.send(2, 1.0, 1.0, 9.0)
    assert not one.is_eligible(9.0, 3.0)
    one.succeed()
    assert one.is_eligible(9.0, 3.0)


def test_an_engine_that_fails_again_and_again_is_left_alone_ever_longer() -> None:
    one = endpoint()
    one.fail(0.0)
    assert one.is_eligible(0.0, 3.0)
    one.fail(0.0)
    assert not one.is_eligible(0.5, 3.0)
    assert one.is_eligible(1.0, 3.0)
    assert one.penalty(1.0) == 3.0  # it starts slowly
    now = 1.0
    for seconds in (2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        for _ in range(5):  # all that it had then is one failure
            one.fail(now)
        one.beat(now + seconds)
        assert not one.is_eligible(now + seconds - 0.1, 3.0)
        now += seconds
        assert one.is_eligible(now, 3.0)
    one.succeed()
    one.fail(now)
    assert one.is_eligible(now, 3.0)


def test_silent_draining_and_unready_engines_get_nothing() -> None:
    one = endpoint()
    assert one.is_eligible(2.9, 3.0)
    assert not one.is_eligible(3.0, 3.0)
    one.hear(state(is_draining=True), 3.0)
    assert not one.is_eligible(3.0, 3.0)
    one.hear(state(is_ready=False), 3.0)
    assert not one.is_eligible(3.0, 3.0)
    one.lose()
    assert one.figures is None


class EndpointHistories(RuleBasedStateMachine):
    """An engine whose state comes late: what is believed is what was sent and has not ended."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoint = endpoint()
        self.counter = 0
        self.at_engine: dict[int, int] = {}
        self.arrived: list[int] = []
        """Of those in flight, what the engine has got, in order."""
        self.on_the_way: list[int] = []

    @rule(blocks=st.integers(1, 20))
    def send(self, blocks: int) -> None:
        self.counter += 1
        self.at_engine[self.counter] = blocks
        self.on_the_way.append(self.counter)
        self.endpoint.send(self.counter, float(blocks), 16.0 * blocks, 0.0)

    @precondition(lambda self: self.on_the_way)
    @rule()
    def arrive(self) -> None:
        self.arrived.append(self.on_the_way.pop(0))

    @precondition(lambda self: self.arrived)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        counter = data.draw(st.sampled_from(self.arrived))
        self.arrived.remove(counter)
        del self.at_engine[counter]
        self.endpoint.end(counter)

    @rule()
    def hear(self) -> None:
        held = sum(self.at_engine[counter] for counter in self.arrived)
        highest = (self.on_the_way[0] if self.on_the_way else self.counter + 1) - 1
        self.endpoint.hear(state(held=held, running=len(self.arrived), counter=highest), 0.0)

    @invariant()
    def nothing_is_counted_twice_or_forgotten(self) -> None:
        figures = self.endpoint.figures
        assert figures is not None
        assert figures.free_blocks == pytest.approx(950 - sum(self.at_engine.values()))
        assert figures.num_requests == len(self.at_engine) == self.endpoint.num_in_flight
        assert figures.is_empty == (not self.at_engine)


TestEndpointHistories = EndpointHistories.TestCase
TestEndpointHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("is_ready", [False, True])
def test_of_an_engine_without_blocks_nothing_is_predicted(*, is_ready: bool) -> None:
    """Its model is on the way, or it says what cannot be."""
    loading = endpoint(1, state(tokens_per_block=0, is_ready=is_ready))

    assert loading.figures is None
    assert not loading.is_eligible(0.0, 10.0)
    assert predict_wait([loading], demand(), 5.0) == 60.0
    full = endpoint(2, state(tokens_per_block=16))
    assert predict_wait([full, loading], demand(), 5.0) == predict_wait([full], demand(), 5.0)
