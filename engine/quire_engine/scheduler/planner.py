"""Plans one step: which requests compute how many tokens, and who gives way.

1. every decode (one missing token), after making room for those that need a block: if none
is free, the least valuable request is preempted
2. chunks of prompts, of running and waiting requests by seniority, while tokens of the
budget, seconds of the step, rows and blocks last
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from quire_engine.execution.base import AppendedBlocks, Batch
from quire_engine.kvcache.manager import PrefixMatch
from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.admission import AdmissionControl
from quire_engine.scheduler.beam_steps import BeamSteps, describe_row
from quire_engine.scheduler.lookahead import expected_tokens, needs_tokens
from quire_engine.scheduler.pace import StepLoad
from quire_engine.scheduler.plan import Plan
from quire_engine.scheduler.request import Request, Seniority
from quire_engine.scheduler.room import MAX_BLOCKED, Room, must_wait_for
from quire_engine.scheduler.roster import Roster
from quire_engine.scheduler.victims import choose_victim

AGED_TOKENS = 16
"""Prompt tokens that an aged background request gets per step ahead of all others' chunks."""


class StepPlanner:
    """Decides over a roster, under the rules of an admission control.

    Parameters
    ----------
    max_num_batched_tokens
        Most tokens of one step, at least the number of rows so that every decode fits.
    """

    def __init__(
        self, roster: Roster, admission: AdmissionControl, *, max_num_batched_tokens: int
    ) -> None:
        self._roster = roster
        self._blocks = roster.blocks
        self._ledger = roster.ledger
        self._waiting = roster.waiting
        self._running = roster.running
        self._admission = admission
        self._room = Room(roster, admission)
        self._beams = BeamSteps(roster)
        self._max_num_batched_tokens = max_num_batched_tokens

    def plan(self, num_steps: int) -> Plan:
        """Plan the next step, or `num_steps` of decodes alone as one."""
        num_tokens = self._room.displace_background() if self._waiting else 0
        self._make_room_for_decodes()
        plan = Plan(Batch(num_steps=num_steps))
        self._schedule_decodes(plan, num_tokens)
        if num_steps == 1:
            self._schedule_chunks(plan)
        if not plan.requests and self._running:
            self._unblock_most_senior(plan)
        self._beams.announce(plan)
        return self._with_ends(plan)

    def plan_ahead(self, computed: Plan) -> Plan | None:
        """Plan the step behind one that is computed; in it, nobody gives way.

        None where there is nothing to compute, and nothing was changed. To be asked only if
        `may_plan_ahead`.
        """
        plan = Plan(Batch())
        with expected_tokens(computed):
            self._schedule_decodes(plan, 0)
            self._schedule_chunks(plan)
        return self._with_ends(plan) if plan.requests else None

    def may_plan_ahead(self, computed: Plan) -> bool:
        """Whether the next step needs neither a token of that one nor anybody to give way.

        Who gives way must have all tokens, to come back with.
        """
        if needs_tokens(computed) or self._roster.beam_groups:
            return False
        is_displaced = self._ledger.has_background and len(self._waiting)
        if is_displaced and self._waiting[0].level is Priority.INTERACTIVE:
            return False
        num_free = self._blocks.pool.num_free
        if num_free >= len(self._running):
            return True
        with expected_tokens(computed):
            return num_free >= len(self._find_needy())

    def _with_ends(self, plan: Plan) -> Plan:
        """Let a plan tell the executor of the rows that were left."""
        plan.batch.ended, self._roster.ended_rows = self._roster.ended_rows, []
        return plan

    def max_identical_steps(self) -> int:
        """Return how many steps would decode the same requests and do nothing else.

        As far as the scheduler can know: a stop token may end one earlier. 1 if nothing runs.
        """
        if self._waiting or not self._running or self._roster.ended_rows:
            return 1
        if self._roster.prompts():
            return 1
        if self._roster.beam_groups:
            return 1  # beams are chosen anew after each step
        if not all(request.is_decoding and request.num_generated for request in self._running):
            return 1  # a first token has a time of its own
        longest = min(request.max_length - len(request.token_ids) for request in self._running)
        while longest > 1 and self._num_blocks_to_grow(longest) > self._blocks.pool.num_free:
            longest //= 2
        return max(longest, 1)

    def _schedule_decodes(self, plan: Plan, num_starting_tokens: int) -> None:
        block_size = self._blocks.block_size
        num_steps = plan.batch.num_steps
        decodes = self._choose_decodes(num_starting_tokens)
        for request in decodes:
            if request.beams is not None and self._beams.shares_tail(request):
                self._beams.own_tail(plan, request)
            room = len(request.table.blocks) * block_size
            while room < request.num_computed_tokens + num_steps:
                self._grow(plan, request, room + 1)
                room += block_size
        plan.add_decodes(decodes)

    def _choose_decodes(self, num_starting_tokens: int) -> list[Request]:
        """Return the decodes of the step: background ones make way for interactive prompts.

        They pause where the step would otherwise be too short for those prompts, and keep their
        blocks.

        Parameters
        ----------
        num_starting_tokens
            Prompt tokens of interactive requests that will start.
        """
        decodes = [r for r in self._running if r.num_computed_tokens == len(r.token_ids) - 1]
        if not decodes or decodes[-1].level is Priority.INTERACTIVE:
            return decodes
        num_tokens = num_starting_tokens + sum(
            request.num_missing_tokens
            for request in self._roster.prompts()
            if request.priority is Priority.INTERACTIVE
        )
        num_tokens = min(num_tokens, self._max_num_batched_tokens)
        num_fixed = sum(request.level is Priority.INTERACTIVE for request in decodes)
        contexts = [request.num_computed_tokens + 1 for request in decodes]
        count = self._admission.pace.num_decodes_beside(contexts, num_fixed, num_tokens)
        # beams of one search step together, so they don't pause
        return decodes[:count] + [r for r in decodes[count:] if r.beams is not None]

    def _num_blocks_to_grow(self, num_steps: int) -> int:
        return sum(
            max(self._blocks.num_missing(r.table, r.num_computed_tokens + num_steps), 0)
            for r in self._running
        )

    def _make_room_for_decodes(self) -> None:
        """Preempt until each decode that starts a block finds a free one."""
        if self._blocks.pool.num_free >= len(self._running):
            return
        needy = self._find_needy()
        while len(needy) > self._blocks.pool.num_free:
            victim = choose_victim(self._running)
            if victim is None:
                raise RuntimeError("bug: one request alone does not fit the KV cache")
            self._roster.preempt(victim)
            self._ledger.safety.count_preemption()
            gone = victim.beams.members if victim.beams is not None else (victim,)
            needy.difference_update(request.request_id for request in gone)

    def _find_needy(self) -> set[str]:
        """Return the decodes, by id, that take a block."""
        block_size = self._blocks.block_size
        needy = {
            request.request_id
            for request in self._running
            if request.num_computed_tokens == len(request.table.blocks) * block_size
            and request.is_decoding
        }
        return needy | self._beams.copying()

    def _schedule_chunks(self, plan: Plan) -> None:
        aged = self._roster.running_aged_prompt()
        budget = self._max_num_batched_tokens - plan.batch.total_tokens
        reserved = min(AGED_TOKENS, -(-budget // 2)) if aged else 0
        budget -= reserved
        load = plan.decode_load()
        lacking = self._roster.num_lacking_blocks() if self._waiting else 0
        blocked: list[Request] = []
        for request in self._prompts_by_seniority():
            if budget <= 0 or self._admission.pace.is_spent(load):
                break
            if request.row is not None:
                budget -= self._continue_prompt(plan, request, budget, load)
            elif self._may_start(request, blocked):
                match = self._roster.match(request)
                has_rows = len(self._roster.free_rows) >= request.num_rows
                if not has_rows or not self._room.fits(request, match, lacking):
                    blocked.append(request)
                    continue
                budget -= self._start(plan, request, match, budget, load)
                lacking += self._ledger.num_lacking_blocks(request)
                for passed in blocked:
                    passed.num_times_passed += 1
        if aged is not None and aged.row not in plan.batch.chunks.rows:
            self._continue_prompt(plan, aged, reserved, StepLoad())

    def _prompts_by_seniority(self) -> Iterator[Request]:
        prompts = sorted(self._roster.prompts(), key=_chunk_order)
        candidates = list(islice(self._waiting, len(self._roster.free_rows) + MAX_BLOCKED))
        return merge(prompts, candidates, key=_chunk_order)

    def _may_start(self, request: Request, blocked: list[Request]) -> bool:
        if not self._roster.free_rows or len(blocked) >= MAX_BLOCKED:
            return False
        return not must_wait_for(blocked, request)

    def _start(
        self, plan: Plan, request: Request, match: PrefixMatch, budget: int, load: StepLoad
    ) -> int:
        self._roster.start(request, match)
        start = request.num_computed_tokens
        copy = self._blocks.make_writable(request.table, start) if match.num_copied else None
        if copy is not None:
            plan.batch.copies.append(copy)
        if request.has_aged:
            budget = min(budget, AGED_TOKENS)
        wanted = min(request.num_missing_tokens, budget)
        num_tokens = self._admission.pace.chunk_limit(load, start, wanted)
        load.add_chunk(start, num_tokens)
        self._blocks.grow(request.table, start + num_tokens)
        plan.batch.started.append(describe_row(request))
        plan.add(request, num_tokens)
        return num_tokens

    def _continue_prompt(self, plan: Plan, request: Request, budget: int, load: StepLoad) -> int:
        """Compute as much of a running prompt as budgets and free blocks allow."""
        start = request.num_computed_tokens
        is_sharing = request.beams is not None and self._beams.shares_tail(request)
        held = len(request.table.blocks) + self._blocks.pool.num_free - is_sharing
        room = held * self._blocks.block_size - start
        wanted = min(request.num_missing_tokens, budget, room)
        num_tokens = self._admission.pace.chunk_limit(load, start, wanted)
        if num_tokens > 0:
            if is_sharing:
                self._beams.own_tail(plan, request)
            load.add_chunk(start, num_tokens)
            self._grow(plan, request, request.num_computed_tokens + num_tokens)
            plan.add(request, num_tokens)
        return num_tokens

    def _unblock_most_senior(self, plan: Plan) -> None:
        """Preempt others until the most senior prompt can go on: nothing else can."""
        # before it there may be beams whose tokens wait for those of the others
        senior = next(request for request in self._running if request.num_missing_tokens > 0)
        goal = min(senior.num_computed_tokens + self._max_num_batched_tokens, len(senior.token_ids))
        while self._blocks.num_missing(senior.table, goal) > self._blocks.pool.num_free:
            victim = choose_victim(self._running)
            if victim is None:
                raise RuntimeError("bug: one request alone does not fit the KV cache")
            self._roster.preempt(victim)
        self._continue_prompt(plan, senior, self._max_num_batched_tokens, StepLoad())

    def _grow(self, plan: Plan, request: Request, num_tokens: int) -> None:
        index = len(request.table.blocks)
        block_ids = self._blocks.grow(request.table, num_tokens)
        if block_ids and request.beams is None:  # of beams, all changes are told together
            plan.batch.appended.append(AppendedBlocks(request.row, index, block_ids))  # type: ignore[arg-type]


def _chunk_order(request: Request) -> Seniority:
    """Starts go by seniority; chunks of those that run by the class that they came in."""
    return request.seniority if request.row is None else request.chunk_order
