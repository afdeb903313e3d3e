"""The requests an engine has: who waits, who runs, in which row, with which blocks.

    enter ──► waiting ──start──► running ──end──► gone
                 ▲                  │
                 └─────preempt──────┘

Every transition keeps queues, rows, blocks and ledger in step; `check_invariants` holds them
against each other.
"""

from collections import Counter
from collections.abc import Collection
from itertools import chain
from operator import attrgetter

from quire_engine.kvcache.manager import BlockManager, PrefixMatch
from quire_engine.protocol.cost import Occupancy
from quire_engine.protocol.messages import (
    FinishReason,
    Priority,
    SequencesByPriority,
)
from quire_engine.scheduler.beams import BeamGroup
from quire_engine.scheduler.counters import SchedulerCounters
from quire_engine.scheduler.ledger import ReservationLedger
from quire_engine.scheduler.pace import StepLoad
from quire_engine.scheduler.queue import SeniorityList
from quire_engine.scheduler.request import Request

_num_computed = attrgetter("num_computed_tokens")

MIN_PROGRESS_BLOCKS = 1
"""A preempted request generates this many blocks of tokens before it is first choice again."""


class Roster:
    """All requests of one engine.

    Parameters
    ----------
    num_rows
        Rows of the executor: most requests that run at the same time.
    """

    def __init__(
        self,
        blocks: BlockManager,
        ledger: ReservationLedger,
        counters: SchedulerCounters,
        *,
        num_rows: int,
    ) -> None:
        self.blocks = blocks
        self.ledger = ledger
        self.counters = counters
        self.waiting = SeniorityList()
        self.running = SeniorityList()
        self.by_id: dict[str, Request] = {}
        self.held: dict[str, Request] = {}
        """Followers, by id, that wait for their leader's prompt before they wait for a start."""
        self.beam_groups: list[BeamGroup] = []
        """Searches that run."""
        self.aged: Request | None = None
        """The background request that aged last; it may have ended."""
        self.free_rows = list(range(num_rows - 1, -1, -1))
        self._prompts: list[Request] = []
        """Those that run and may still have a prompt to compute; `prompts` drops the others."""
        self.ended_rows: list[int] = []
        """Rows left since the last plan: the executor is yet to be told."""

    def enter(self, request: Request, occupancy: Occupancy) -> None:
        """Let a new request wait."""
        self.by_id[request.request_id] = request
        self.waiting.add(request)
        self.ledger.queue(request, occupancy)

    def hold(self, follower: Request, leader: Request, occupancy: Occupancy) -> None:
        """Keep a new request until its leader's prompt is computed, which it shares."""
        self.by_id[follower.request_id] = self.held[follower.request_id] = follower
        follower.leader = leader
        leader.followers.append(follower)
        self.ledger.queue(follower, occupancy)

    def release_followers(self, leader: Request, *, is_prompt_done: bool) -> None:
        """Let those that were held back wait for a start.

        A prompt that is done has its scores, if any are wanted, at the end of this step.
        """
        for follower in leader.followers:
            if is_prompt_done:
                follower.prompt_logprobs = leader.prompt_logprobs
            del self.held[follower.request_id]
            self.waiting.add(follower)
        leader.followers.clear()

    def match(self, request: Request) -> PrefixMatch:
        """Return what is there of a request's tokens: in its leader's blocks, or in the cache.

        A leader that was preempted may be computing its prompt again, so its blocks don't count.
        """
        leader = request.leader
        is_there = leader is not None and leader.row is not None and leader.num_preemptions == 0
        if leader is not None and is_there and request.shares_prompt:
            return self.blocks.match_twin(leader.table, request.num_prompt_tokens)
        if request.needs_whole_prompt:
            return PrefixMatch()
        return self.blocks.match_prefix(request.table, request.token_ids)

    def start(self, request: Request, match: PrefixMatch) -> int:
        """Give a waiting request a row and what is there of its tokens; returns the row.

        A search has the rows of all its beams from here on.
        """
        self.waiting.remove(request)
        self.running.add(request)
        self._prompts.append(request)
        if not request.num_preemptions:
            request.num_expected_blocks = request.occupancy.peak + match.num_shared
        self.ledger.admit(request)
        if request.beams is not None:
            self._begin_search(request.beams)
        self.blocks.begin(request.table, match)
        request.row = self.free_rows.pop()
        request.num_computed_tokens = match.num_tokens
        request.num_times_passed = 0
        if not match.num_copied:  # a leader's blocks are no finding of the prefix cache
            self.counters.count_start(request, match.num_tokens)
        return request.row

    def preempt(self, request: Request) -> None:
        """Send a running request back to its place in the queue; its full blocks stay cached.

        An interactive one stays on the predicted curve; a background one waits like the others.
        The beams of a search go together.
        """
        if request.beams is not None:
            self._preempt_search(request.beams)
            return
        self._leave_row(request)
        self._send_back(request)
        self.counters.num_preemptions += 1
        self.waiting.add(request)

    def _send_back(self, request: Request) -> None:
        progress = MIN_PROGRESS_BLOCKS * self.blocks.block_size
        request.progress_to_preempt = len(request.token_ids) + progress
        request.num_preemptions += 1
        self.counters.count_lost(request)
        if request.level is Priority.BACKGROUND:
            self.ledger.requeue(request)
        else:
            self.ledger.suspend(request)

    def age(self, oldest_arrival: float) -> None:
        """Order the oldest background request as an interactive one, if it came before this.

        One at a time, until it ends: background work goes on however much interactive comes, and
        a backlog of it costs interactive requests one row, not all of them.
        """
        if self.aged is not None and self.aged.finish_reason is None:
            return
        firsts = (self.waiting.first_background(), self.running.first_background())
        request = min(filter(None, firsts), key=lambda first: first.seniority, default=None)
        if request is None or request.seniority[1] > oldest_arrival:
            return
        for member in request.beams.members if request.beams is not None else (request,):
            self._promote(member)
        self.aged = request

    def _promote(self, request: Request) -> None:
        is_held = request.request_id in self.held
        queue = self.waiting if request.row is None else self.running
        if not is_held:
            queue.remove(request)
        self.ledger.promote(request)
        request.seniority = (int(Priority.INTERACTIVE), *request.seniority[1:])
        if not is_held:
            queue.add(request)

    def end(self, request: Request, reason: FinishReason) -> None:
        """Let a request go, wherever it is; its row and blocks are free at once.

        The beams of a search go together; what they come to is learnt from the leader alone.
        """
        if request.beams is None:
            self._end(request, reason)
            return
        self._leave_search(request.beams)
        leader, *followers = request.beams.members
        for follower in followers:
            self._end(follower, FinishReason.ABORT)
        self._end(leader, reason)

    def join(self, member: Request) -> None:
        """Let a beam that was held back run, in a row that is kept for it; it has its blocks."""
        del self.held[member.request_id]
        member.leader.followers.remove(member)  # type: ignore[union-attr]  # held by it
        member.row = member.beams.spare_rows.pop()  # type: ignore[union-attr]  # it has beams
        self.running.add(member)
        self._prompts.append(member)

    def park(self, member: Request) -> None:
        """Hold a member back that has no beam to carry; its row is kept for it."""
        self._leave_row(member)
        member.beams.spare_rows.append(self.free_rows.pop())  # type: ignore[union-attr]
        self._hold_back(member)

    def _hold_back(self, member: Request) -> None:
        self.held[member.request_id] = member
        member.leader.followers.append(member)  # type: ignore[union-attr]  # leaders wait

    def _begin_search(self, group: BeamGroup) -> None:
        group.spare_rows = [self.free_rows.pop() for _ in group.members[1:]]
        for follower in group.members[1:]:
            self.ledger.admit(follower)
        self.beam_groups.append(group)

    def _preempt_search(self, group: BeamGroup) -> None:
        leader, *followers = group.members
        self._leave_search(group)
        for follower in followers:
            if follower.row is not None:
                self._leave_row(follower)
                self._hold_back(follower)
            # what it has in common with the leader is computed again once, by the leader
            own = follower.num_computed_tokens - follower.num_joint_tokens
            follower.num_computed_tokens = max(own, 0)
        self._leave_row(leader)
        group.told.clear()
        for member in group.members:
            self._send_back(member)
        self.counters.num_preemptions += 1
        self.waiting.add(leader)

    def _leave_search(self, group: BeamGroup) -> None:
        """Give back what a search has beside the rows and blocks of its beams."""
        if group in self.beam_groups:
            self.beam_groups.remove(group)
            self.free_rows += group.withdraw()

    def _end(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        del self.by_id[request.request_id]
        self.ledger.end(request, reason)
        if reason is FinishReason.REFUSED:
            for follower in request.followers.copy():
                self.end(follower, reason)
        self.release_followers(request, is_prompt_done=False)
        if self.held.pop(request.request_id, None) is not None:
            request.leader.followers.remove(request)  # type: ignore[union-attr]  # held by it
        elif request.row is None:
            self.waiting.remove(request)
        else:
            if reason in (FinishReason.STOP, FinishReason.LENGTH):
                self.counters.count_end(request)
            self._leave_row(request)

    def running_aged_prompt(self) -> Request | None:
        """Return the aged request if its prompt is being computed; asked after the decodes."""
        aged = self.aged
        if aged is None or aged.row is None or aged.num_missing_tokens == 0:
            return None
        return aged

    def take_back(self, *, unended_rows: list[int], unstarted_rows: Collection[int]) -> None:
        """Take in what a failed step did not tell the executor.

        Parameters
        ----------
        unended_rows
            Are to be told in the next step.
        unstarted_rows
            Their requests have ended, and the executor need not know of them.
        """
        left = (row for row in self.ended_rows if row not in unstarted_rows)
        self.ended_rows = [*unended_rows, *left]

    def prompts(self) -> list[Request]:
        """Return the running requests that miss more than their newest token, in no order.

        All others decode, and go on to until they leave their row: so only those that were here
        the last time are looked at, and not all that run.
        """
        if self._prompts:
            self._prompts = [r for r in self._prompts if r.num_missing_tokens > 1]
        return self._prompts

    def load(self) -> StepLoad:
        """What the next step's decodes and running prompts are.

        A decode misses its newest token, or none while the step that brings it is computed.
        """
        prompts, background = self.prompts(), self.running.background()
        yielding = [r.num_computed_tokens for r in background if r.num_missing_tokens <= 1]
        num_decodes = len(self.running) - len(prompts)
        computed = sum(map(_num_computed, self.running)) - sum(map(_num_computed, prompts))
        return StepLoad(
            num_decodes=num_decodes,
            context_tokens=computed + num_decodes,
            prefill_tokens=sum(r.num_missing_tokens for r in prompts),
            background_prefill_tokens=sum(
                r.num_missing_tokens for r in prompts if r.priority is Priority.BACKGROUND
            ),
            num_lacking_blocks=sum(map(self.ledger.num_lacking_blocks, prompts)),
            num_yielding_decodes=len(yielding),
            yielding_context_tokens=sum(yielding) + len(yielding),
        )

    def num_lacking_blocks(self) -> int:
        """Blocks that running prompts will still take: promised, so not free for others."""
        return sum(
            self.ledger.num_lacking_blocks(request)
            for request in self.running
            if request.num_missing_tokens > 0
        )

    def num_tokens_ahead(self, request: Request) -> int:
        """Prompt tokens, of requests that run or wait, to be computed before a new one's own."""
        own_place = request.chunk_order
        return sum(
            missing
            for r in chain(self.prompts(), self.waiting)
            if (missing := len(r.token_ids) - r.num_computed_tokens) > 1
            and r.chunk_order < own_place
        )

    def num_prompt_tokens_ahead(self) -> int:
        """Prompt tokens that are still to be computed; what is cached of waiting prompts, too."""
        known = chain(self.prompts(), self.waiting, self.held.values())
        return sum(max(r.num_missing_tokens, 0) for r in known)

    def num_filled_tokens(self) -> int:
        """Token slots of held blocks that hold computed KV; shared blocks count once."""
        size = self.blocks.block_size
        single = (request for request in self.running if request.beams is None)
        unfilled = sum(len(r.table.blocks) * size - r.num_computed_tokens for r in single)
        for group in self.beam_groups:
            # beams that share their last block leave the same slots of it empty
            lasts = {m.table.blocks[-1].block_id: m for m in group.members if m.table.blocks}
            unfilled += sum(
                len(m.table.blocks) * size - m.num_computed_tokens for m in lasts.values()
            )
        return self.blocks.pool.num_held * size - unfilled

    def count_by_priority(self) -> dict[str, SequencesByPriority]:
        """Count requests by the class they came in."""
        running = Counter(request.priority for request in self.running)
        waiting = Counter(r.priority for r in chain(self.waiting, self.held.values()))
        return {
            priority.name.lower(): SequencesByPriority(
                running=running[priority], waiting=waiting[priority]
            )
            for priority in Priority
        }

    def request_ids_of(self, client_id: str) -> list[str]:
        """Return the ids of an API server's requests."""
        return [r.request_id for r in self.by_id.values() if r.client_id == client_id]

    def check_invariants(self) -> None:
        """Check queues, rows, blocks and ledger against each other; raises RuntimeError."""
        self.blocks.check_invariants(request.table for request in self.by_id.values())
        self.ledger.check_invariants(self.by_id.values())
        queues = (self.waiting, self.running, self.held.values())
        queued = [request.request_id for request in chain.from_iterable(queues)]
        if set(queued) != self.by_id.keys() or len(queued) != len(self.by_id):
            raise RuntimeError("bug: a request is in no queue or in two")
        followers = {id(follower) for r in self.by_id.values() for follower in r.followers}
        if followers != {id(follower) for follower in self.held.values()}:
            raise RuntimeError("bug: a request is held back for no leader")
        if any(
            r.row is not None or r.table.blocks for r in chain(self.waiting, self.held.values())
        ):
            raise RuntimeError("bug: a waiting request holds a row or blocks")
        rows = [r.row for r in self.running] + self.free_rows
        rows += chain.from_iterable(group.spare_rows for group in self.beam_groups)
        if len(set(rows)) != len(rows) or None in rows:
            raise RuntimeError("bug: a row is lost or used twice")
        prompts = {id(request) for request in self.running if request.num_missing_tokens > 1}
        if {id(request) for request in self.prompts()} != prompts:
            raise RuntimeError("bug: other prompts are computed than the roster knows of")
        for request in self.running:
            if self.blocks.num_missing(request.table, request.num_computed_tokens) > 0:
                raise RuntimeError(f"bug: {request} computed more tokens than its blocks hold")

    def _leave_row(self, request: Request) -> None:
        self.running.remove(request)
        if request in self._prompts:
            self._prompts.remove(request)
        self.blocks.release(request.table)
        if request.beams is None or request.request_id in request.beams.told:
            self.ended_rows.append(request.row)  # type: ignore[arg-type]  # running requests have rows
        self.free_rows.append(request.row)  # type: ignore[arg-type]
        request.row = None
