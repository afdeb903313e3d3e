"""Refused clients come back one after the other: in virtual time, so that it is always the same."""

import random
from heapq import heappop, heappush

from quire_engine.config import AdmissionConfig, CacheConfig, EngineConfig, ExecutorConfig
from quire_engine.config import ModelConfig as Model
from quire_engine.core.engine import EngineCore
from quire_engine.core.turns import ReturnTurns
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.protocol.messages import AddRequest, FinishReason, TokenDelta
from quire_engine.protocol.sampling import SamplingParams

MAX_ATTEMPTS = 3
"""The SDK's first attempt and its two retries."""


class Clients:
    """Clients of an engine of 64 blocks that do as the SDK does, jitter included."""

    def __init__(self, *, num_clients: int, arrive_within_seconds: float) -> None:
        config = EngineConfig(
            model=Model(max_model_len=1024),
            cache=CacheConfig(max_num_blocks=64),
            executor=ExecutorConfig(
                simulate="h100", model_shape="llama3-8b", simulated_step_seconds=0.005
            ),
            admission=AdmissionConfig(slo_time_to_first_token=2.0),
        )
        self.clock = VirtualClock()
        executor = SimulatedExecutor(config, clock=self.clock)
        facts = executor.allocate_cache()
        self.core = EngineCore(config, executor, facts, random_source=random.Random(1))
        self.chance = random.Random(4)
        self.calls: list[tuple[float, int, int]] = []
        """(when, client, attempt), to come."""
        for client in range(num_clients):
            heappush(self.calls, (self.chance.uniform(0, arrive_within_seconds), client, 0))
        self.sizes = [
            (self.chance.randint(16, 240), self.chance.randint(8, 64)) for _ in range(num_clients)
        ]
        self.num_repeated = self.num_refused_again = self.num_answered = 0
        self.num_given_up_on = 0
        """Refused only after they had waited."""

    def run(self) -> None:
        """Until all clients have an answer or have given up."""
        while self.calls or self.core.has_work():
            if not self.core.has_work():
                self.clock.sleep_until(self.calls[0][0])
            while self.calls and self.calls[0][0] <= self.clock.now():
                self._call(*heappop(self.calls)[1:])
            for _, delta in self.core.step(self.clock.now()):
                self.num_answered += delta.finish_reason is FinishReason.LENGTH
                if delta.retry_after_seconds is not None:
                    self.num_given_up_on += 1
                    self._come_back(delta)

    def _call(self, client: int, attempt: int) -> None:
        self.num_repeated += attempt > 0
        num_prompt, num_tokens = self.sizes[client]
        request = AddRequest(
            client_id="api",
            request_id=f"{client}-{attempt}",
            prompt_token_ids=[client, *range(num_prompt)],
            sampling=SamplingParams(max_tokens=num_tokens),
        )
        refusal = self.core.add(request, self.clock.now())
        if refusal is None:
            return
        self._come_back(refusal)

    def _come_back(self, refusal: TokenDelta) -> None:
        """Ask again when told to, unless that was the last attempt."""
        client, attempt = map(int, refusal.request_id.split("-"))
        self.num_refused_again += attempt > 0
        assert refusal.retry_after_seconds is not None
        wait = min(refusal.retry_after_seconds, 60.0) * self.chance.uniform(1.0, 1.2)
        if attempt + 1 < MAX_ATTEMPTS:
            heappush(self.calls, (self.clock.now() + wait, client, attempt + 1))


def test_all_of_two_hundred_clients_are_served_and_not_much_later_than_in_one_queue() -> None:
    clients = Clients(num_clients=200, arrive_within_seconds=0.3)
    clients.run()

    assert clients.num_repeated > 100
    assert clients.num_refused_again <= 0.05 * clients.num_repeated
    assert clients.num_answered == 200
    assert clients.num_given_up_on <= 50  # of a cold engine that knows no lengths yet
    assert clients.clock.now() < 11.0  # 7 s of work: what waits in a queue is through by then


def test_nobody_is_told_to_stay_away_for_more_than_a_minute_however_many_ask() -> None:
    turns = ReturnTurns()
    told = [turns.assign(0.0, 2.0, 1.5) for _ in range(500)]

    assert all(2.0 <= seconds <= 50.0 for seconds in told)
    assert max(map(told.count, told)) <= 500 / 30, "they come back together"
    assert turns.assign(0.0, 1000.0, 1.0) == 50.0


def test_turns_are_not_earlier_than_room_and_do_not_pile_up_when_nobody_asks() -> None:
    turns = ReturnTurns()

    assert [turns.assign(0.0, 2.0, 1.5) for _ in range(3)] == [2.0, 3.5, 5.0]
    assert turns.assign(1.0, 9.0, 1.0) == 9.0
    assert turns.assign(100.0, 1.0, 1.0) == 1.0
