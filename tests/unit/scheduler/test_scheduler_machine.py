"""Random histories of a scheduler over tiny caches: invariants after each operation.

QUIRE_DEEP=1 runs many more of them.
"""

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire_engine.profiles.step_time import constant_step_time
from quire_engine.protocol.messages import FinishReason, Priority
from tests.unit.scheduler.harness import Harness, generate, limits

NUM_BLOCKS = 8
BLOCK_SIZE = 4
NUM_HISTORIES = 3000 if os.environ.get("QUIRE_DEEP") == "1" else 120

deadlines = st.none() | st.floats(0.0, 40.0)


class SchedulerHistories(RuleBasedStateMachine):
    """Requests that come, go, stop, are refused and preempted; prompts share beginnings."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted: set[str] = set()

    @initialize(
        admission=st.sampled_from([0.3, 0.7, 1.0]),
        background=st.sampled_from([0.3, 0.5]),
        per_token=st.sampled_from([None, 0.5, 1.0, 2.0]),
        max_queue_seconds=st.sampled_from([10.0, 1e6]),
        max_waiting_requests=st.sampled_from([2, 1000]),
        knows_step_time=st.booleans(),
    )
    def start(
        self,
        admission: float,
        background: float,
        per_token: float | None,
        max_queue_seconds: float,
        max_waiting_requests: int,
        knows_step_time: bool,
    ) -> None:
        self.harness = Harness(
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            max_num_seqs=3,
            max_num_batched_tokens=7,
            ageing_seconds=20.0,
            limits=limits(
                admission=admission,
                background=background,
                per_token=per_token,
                max_queue_seconds=max_queue_seconds,
                max_waiting_requests=max_waiting_requests,
            ),
            step_time=constant_step_time(1.0) if knows_step_time else None,
        )

    @rule(
        length=st.integers(1, 20),
        max_tokens=st.integers(1, 12),
        kind=st.integers(0, 2),
        priority=st.sampled_from(Priority),
        stop=st.lists(st.integers(0, 49), max_size=5),
        salt=st.sampled_from(["", "tenant"]),
        deadline=deadlines,
        starts_now=st.booleans(),
        num_sequences=st.sampled_from([1, 1, 2, 4]),
    )
    def add(
        self,
        length: int,
        max_tokens: int,
        kind: int,
        priority: Priority,
        stop: list[int],
        salt: str,
        deadline: float | None,
        starts_now: bool,
        num_sequences: int,
    ) -> None:
        prompt = [kind + position % 3 for position in range(length)]
        self.harness.add(
            prompt,
            max_tokens=max_tokens,
            priority=priority,
            stop_token_ids=tuple(stop),
            salt=salt,
            deadline_seconds=deadline,
            starts_now=starts_now,
            num_sequences=num_sequences,
        )
        self.harness.scheduler.check_invariants()

    @rule(steps=st.integers(1, 5))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.harness.step()

    @precondition(lambda self: self.harness.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.harness.requests)))
        ended = self.harness.scheduler.abort([request_id, "unknown"])
        self.aborted |= {request.request_id for request in ended}
        self.harness.scheduler.check_invariants()

    @invariant()
    def the_ledger_counts_what_is_held_and_promised(self) -> None:
        scheduler = self.harness.scheduler
        if scheduler.ledger.is_empty:
            return
        lacking = sum(map(scheduler.ledger.num_lacking_blocks, scheduler.running))
        preempted = filter(scheduler.ledger.is_suspended, scheduler.waiting)
        promised = sum(map(scheduler.ledger.num_lacking_blocks, preempted))
        now = scheduler.ledger.curve(lacking).mean[0]
        assert now == pytest.approx(scheduler.blocks.pool.num_held + lacking + promised)
        assert scheduler.num_reserved_blocks() >= scheduler.blocks.pool.num_held

    @invariant()
    def at_most_one_background_request_has_aged(self) -> None:
        aged = [r for r in self.harness.scheduler.roster.by_id.values() if r.has_aged]
        assert len(aged) <= 1

    def teardown(self) -> None:
        self.harness.run_to_end()
        pool = self.harness.scheduler.blocks.pool
        assert pool.num_held == 0
        assert self.harness.scheduler.num_reserved_blocks() == 0
        assert self.harness.scheduler.ledger.num_queued_blocks == 0
        for request_id, request in self.harness.requests.items():
            self.check_end(request_id, self.harness.outputs[request_id], request.finish_reason)

    def check_end(self, request_id: str, output: list[int], reason: FinishReason | None) -> None:
        request = self.harness.requests[request_id]
        sampling = request.sampling
        prompt = request.token_ids[: request.num_prompt_tokens]
        assert output == generate(prompt, len(output)), "company changed the tokens"
        if request_id in self.harness.refused:
            retry_after = self.harness.refused[request_id].retry_after_seconds
            assert not output, "it was let in, and refused after all"
            assert 1.0 <= retry_after <= 60.0
        elif request_id in self.aborted:
            assert reason == FinishReason.ABORT
        elif reason == FinishReason.STOP:
            assert output[-1] in sampling.stop_token_ids
            assert not set(output[:-1]) & set(sampling.stop_token_ids)
        else:
            assert reason == FinishReason.LENGTH
            assert len(output) == sampling.max_tokens


TestSchedulerHistories = SchedulerHistories.TestCase
TestSchedulerHistories.settings = settings(
    max_examples=NUM_HISTORIES, stateful_step_count=30, deadline=None
)
