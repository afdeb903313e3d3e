"""Random histories with searches among other requests, in caches where there is not room for all.

QUIRE_DEEP=1 runs many more of them.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire_engine.protocol.beams import BeamParams, EarlyStopping, most_blocks
from quire_engine.protocol.messages import Priority
from tests.unit.scheduler.harness import Harness, generate, limits, search

BLOCK_SIZE = 4
NUM_HISTORIES = 3000 if os.environ.get("QUIRE_DEEP") == "1" else 60


class BeamHistories(RuleBasedStateMachine):
    """Searches and single requests that come, go and are preempted; prompts share beginnings."""

    @initialize(
        num_blocks=st.sampled_from([14, 20, 40]),
        max_num_seqs=st.sampled_from([4, 6]),
        budget=st.sampled_from([7, 16]),
        admission=st.sampled_from([0.5, 1.0]),
        caches=st.booleans(),
        max_queue_seconds=st.sampled_from([15.0, 1e6]),
    )
    def start(
        self,
        num_blocks: int,
        max_num_seqs: int,
        budget: int,
        admission: float,
        caches: bool,
        max_queue_seconds: float,
    ) -> None:
        self.num_blocks = num_blocks
        self.harness = Harness(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            ageing_seconds=20.0,
            limits=limits(admission=admission, max_queue_seconds=max_queue_seconds),
        )
        self.harness.scheduler.blocks._enabled = caches
        self.aborted: set[str] = set()
        self.searches: dict[str, tuple[list[int], BeamParams, int, tuple[int, ...], int]] = {}
        self.singles: dict[str, tuple[list[int], int]] = {}

    @rule(
        length=st.integers(1, 14),
        max_tokens=st.integers(1, 10),
        kind=st.integers(0, 1),
        width=st.integers(1, 4),
        stops=st.lists(st.integers(0, 49), max_size=4, unique=True),
        penalty=st.sampled_from([-1.0, 0.0, 1.0, 2.0]),
        early=st.sampled_from([False, True, "never"]),
        stop_texts=st.sampled_from([(), (), ("a",), ("cb", "d")]),
        priority=st.sampled_from(Priority),
        data=st.data(),
    )
    def search_for(
        self,
        length: int,
        max_tokens: int,
        kind: int,
        width: int,
        stops: list[int],
        penalty: float,
        early: EarlyStopping,
        stop_texts: tuple[str, ...],
        priority: Priority,
        data: st.DataObject,
    ) -> None:
        prompt = [kind + position % 3 for position in range(length)]
        most = most_blocks(
            num_prompt_tokens=length,
            max_length=length + max_tokens,
            width=width,
            block_size=BLOCK_SIZE,
        )
        if most > self.num_blocks:
            return
        params = BeamParams(
            width=width, length_penalty=penalty, early_stopping=early, stop_texts=stop_texts
        )
        num_answers = data.draw(st.integers(1, width))
        leader = self.harness.add(
            prompt,
            max_tokens=max_tokens,
            priority=priority,
            stop_token_ids=tuple(stops),
            num_sequences=num_answers,
            beams=params,
        )
        self.searches[leader] = (prompt, params, max_tokens, tuple(stops), num_answers)
        self.harness.scheduler.check_invariants()

    @rule(
        length=st.integers(1, 14),
        max_tokens=st.integers(1, 10),
        kind=st.integers(0, 1),
        num_sequences=st.sampled_from([1, 1, 2]),
        priority=st.sampled_from(Priority),
    )
    def ask(
        self, length: int, max_tokens: int, kind: int, num_sequences: int, priority: Priority
    ) -> None:
        prompt = [kind + position % 3 for position in range(length)]
        first = self.harness.num_added + 1
        self.harness.add(
            prompt, max_tokens=max_tokens, priority=priority, num_sequences=num_sequences
        )
        for number in range(first, first + num_sequences):
            self.singles[f"request-{number}"] = (prompt, max_tokens)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.harness.step()

    @precondition(lambda self: self.harness.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.harness.requests)))
        ended = self.harness.scheduler.abort([request_id])
        self.aborted |= {request.request_id for request in ended}
        self.aborted |= {r.leader.request_id for r in ended if r.beams and r.leader}
        self.harness.scheduler.check_invariants()

    @precondition(lambda self: self.harness.scheduler.running)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        running = list(self.harness.scheduler.running)
        self.harness.scheduler.roster.preempt(data.draw(st.sampled_from(running)))
        self.harness.scheduler.check_invariants()

    @invariant()
    def beams_hold_what_their_tokens_need(self) -> None:
        """Whoever carries no beam holds nothing, and none holds more than its own tokens take."""
        blocks = self.harness.scheduler.blocks
        for group in self.harness.scheduler.roster.beam_groups:
            for member in group.members:
                most = blocks.num_blocks_for(len(member.token_ids))
                assert len(member.table.blocks) <= (most if member in group.carriers else 0)

    @invariant()
    def slots_filled_are_no_more_than_there_are(self) -> None:
        roster = self.harness.scheduler.roster
        assert 0 <= roster.num_filled_tokens() <= roster.blocks.pool.num_held * BLOCK_SIZE

    def teardown(self) -> None:
        self.harness.run_to_end()
        scheduler = self.harness.scheduler
        assert scheduler.blocks.pool.num_held == 0
        assert scheduler.num_reserved_blocks() == 0
        assert scheduler.ledger.num_queued_blocks == 0
        assert len(scheduler.roster.free_rows) == scheduler.max_num_seqs
        for leader, (prompt, params, max_tokens, stops, count) in self.searches.items():
            ids = [leader, *(f"{leader}.{index}" for index in range(1, count))]
            found = [self.harness.outputs[name] for name in ids]
            if leader in self.aborted or leader in self.harness.refused:
                assert not any(found), "an answer before its end"
            else:
                assert found == search(prompt, params, max_tokens, stops)[:count]
        for name, (prompt, max_tokens) in self.singles.items():
            if name not in self.aborted and name not in self.harness.refused:
                assert self.harness.outputs[name] == generate(prompt, max_tokens)


TestBeamHistories = BeamHistories.TestCase
TestBeamHistories.settings = settings(
    max_examples=NUM_HISTORIES, stateful_step_count=25, deadline=None
)
