"""The scheduler: continuous batching over paged KV blocks.

There is no prefill phase and no decode phase: a request has tokens whose KV is missing, and each
step computes some of them within a token budget.

    schedule()     1. every decode (one missing token), after making room for those that need a
                      block: if none is free, the least valuable request is preempted
                   2. chunks of prompts, of running and waiting requests by seniority, while
                      tokens of the budget, rows and blocks last
    postprocess()  sampled tokens are appended; full blocks become findable; what ended leaves

Time comes in as an argument, so that the same code runs live, in tests and in virtual time.
"""

from collections.abc import Iterable, Sequence
from math import inf

from quire_engine.execution.base import StepResult
from quire_engine.kvcache.manager import BlockManager
from quire_engine.profiles.output_length import OutputLengthSketch
from quire_engine.protocol.cost import sum_occupancies
from quire_engine.protocol.messages import FinishReason, Pressure, Thresholds, TokenDelta
from quire_engine.scheduler.admission import AdmissionControl, Refusal
from quire_engine.scheduler.beam_steps import BeamSteps
from quire_engine.scheduler.beams import check_fits
from quire_engine.scheduler.counters import SchedulerCounters
from quire_engine.scheduler.embeddings import attach_embeddings
from quire_engine.scheduler.ledger import ReservationLedger
from quire_engine.scheduler.macro_steps import remember_steps
from quire_engine.scheduler.pace import Pace
from quire_engine.scheduler.plan import Plan
from quire_engine.scheduler.planner import StepPlanner
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.roster import Roster
from quire_engine.scheduler.scores import attach_scores

DEFAULT_THRESHOLDS = Thresholds(
    admission=0.95, background=0.8, max_queue_seconds=600.0, max_waiting_requests=1024
)
"""Limits of a scheduler that is given none: requests wait for room, within bounds."""


class Scheduler:
    """Decides what each step computes.

    Parameters
    ----------
    blocks
        The KV blocks; the scheduler is their only user.
    max_num_seqs
        Rows of the executor: most requests that run at the same time.
    max_num_batched_tokens
        Most tokens of one step, at least `max_num_seqs` so that every decode fits.
    ageing_seconds
        The oldest background request is ordered as an interactive one once it is so old.
    limits
        Thresholds of admission; without an SLO among them requests wait for room.
    pace
        Predicts steps; without a model, chunks are bounded by the token budget alone.
    lengths
        What is known of outputs' lengths, from an earlier run.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        ageing_seconds: float,
        limits: Thresholds | None = None,
        pace: Pace | None = None,
        lengths: OutputLengthSketch | None = None,
    ) -> None:
        self.blocks = blocks
        self.max_num_seqs = max_num_seqs
        self.ledger = ReservationLedger(blocks, lengths=lengths)
        self.counters = SchedulerCounters()
        self.roster = Roster(blocks, self.ledger, self.counters, num_rows=max_num_seqs)
        self.waiting = self.roster.waiting
        self.running = self.roster.running
        pace = pace or Pace(
            None, step_seconds_budget=None, max_num_batched_tokens=max_num_batched_tokens
        )
        self._max_num_batched_tokens = max_num_batched_tokens
        self._ageing_seconds = ageing_seconds
        self._refused: list[tuple[Request, Refusal]] = []
        self._now = -inf
        """The latest time that a step was planned for."""
        self._last_step: tuple[float, int] | None = None
        """When the last step began and how many it stood for, if it did anything."""
        self._ended_at: float | None = None
        """When the step that is taken in had ended, if anybody said."""
        self._first_tokens: list[Request] = []
        """Requests whose first token the last step brought."""
        self.use(
            AdmissionControl(
                self.ledger,
                pace,
                limits or DEFAULT_THRESHOLDS,
                num_blocks=blocks.pool.num_total,
                block_size=blocks.block_size,
                max_num_seqs=max_num_seqs,
            )
        )

    def use(self, admission: AdmissionControl) -> None:
        """Put other rules of admission in force."""
        self.admission = admission
        self._beams = BeamSteps(self.roster)
        self._planner = StepPlanner(
            self.roster, admission, max_num_batched_tokens=self._max_num_batched_tokens
        )

    @property
    def pace(self) -> Pace:
        """How fast the engine is expected to go."""
        return self.admission.pace

    def add(
        self,
        request: Request,
        now: float = 0.0,
        *,
        starts_now: bool = False,
        followers: Sequence[Request] = (),
    ) -> Refusal | None:
        """Let a request wait for its start, or refuse it.

        Parameters
        ----------
        followers
            Other continuations of its prompt, of the same length at most: judged together with
            it, and started on its blocks once they are filled.

        Raises
        ------
        ValueError
            An id is in use, or it never fits the cache.
        """
        for new in (request, *followers):
            if new.request_id in self.roster.by_id:
                raise ValueError(f"request id {new.request_id!r} is in use")
        if self.blocks.num_blocks_for(request.max_length) > self.blocks.pool.num_total:
            raise ValueError(f"{request.max_length} tokens never fit the KV cache")
        check_fits(request.beams, self.blocks, max_num_seqs=self.max_num_seqs)
        self.roster.age(now - self._ageing_seconds)
        match = self.roster.match(request)
        occupancy = self.ledger.predict(request, num_shared_blocks=match.num_shared)
        num_shared = (request.num_prompt_tokens - 1) // self.blocks.block_size
        shares = [self.ledger.predict(f, num_shared_blocks=num_shared) for f in followers]
        load = self.roster.load()
        refusal = self.admission.judge(
            request,
            match,
            sum_occupancies((occupancy, *shares)) if shares else occupancy,
            load=load,
            tokens_ahead=self.roster.num_tokens_ahead(request),
            num_waiting=len(self.waiting),
            starts_now=starts_now,
            now=now,
        )
        self.counters.count_decision(refusal)
        if refusal is None:
            if not self.roster.by_id:
                self._forget_last_step()
            self.roster.enter(request, occupancy)
            for follower, share in zip(followers, shares, strict=True):
                self.roster.hold(follower, request, share)
        return refusal

    def abort(self, request_ids: Iterable[str]) -> list[Request]:
        """End requests at once and return those that were still there; their blocks are free."""
        aborted = []
        for request_id in request_ids:
            request = self.roster.by_id.get(request_id)
            if request is not None:
                self.roster.end(request, FinishReason.ABORT)
                aborted.append(request)
        return aborted

    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self.roster.by_id)

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Put other limits in force; what runs or waits goes on under them."""
        self.admission.limits = thresholds
        self.pace.step_seconds_budget = thresholds.slo_time_per_output_token_seconds

    def max_identical_steps(self) -> int:
        """Return how many steps would decode the same requests and do nothing else.

        As far as the scheduler can know: a stop token may end one earlier. 1 if nothing runs.
        """
        return self._planner.max_identical_steps()

    def schedule(self, now: float, *, num_steps: int = 1) -> Plan:
        """Decide the next step.

        Parameters
        ----------
        now
            Seconds of a clock; one that goes back counts as standing still.
        num_steps
            Take so many steps as one, at most `max_identical_steps`: for virtual time.
        """
        now = self._begin_step(now)
        plan = self._planner.plan(num_steps)
        self._note(plan, now)
        return plan

    def schedule_ahead(self, now: float, computed: Plan) -> Plan | None:
        """Decide the step behind one that is `computed`; None if that is to be taken in first.

        See `lookahead`.
        """
        if not self._planner.may_plan_ahead(computed):
            return None
        now = self._begin_step(now)
        if (plan := self._planner.plan_ahead(computed)) is not None:
            self._note(plan, now)
        return plan

    def take_refused(self) -> list[tuple[Request, Refusal]]:
        """Return the requests that could wait no longer, each once; asked after `schedule`."""
        refused, self._refused = self._refused, []
        return refused

    def postprocess(
        self, plan: Plan, result: StepResult, now: float | None = None
    ) -> list[tuple[str, TokenDelta]]:
        """Take in what a step computed; return each client's news.

        Parameters
        ----------
        now
            When the step had ended; without it, nobody is told how long a phase took.
        """
        self._ended_at = now
        self.ledger.grow(plan.sampling(), plan.batch.num_steps)
        if plan.batch.num_steps > 1:
            return self._postprocess_steps(plan, result)
        deltas = []
        chunks = plan.batch.chunks
        sampled = iter(result.token_ids)
        block_size = self.blocks.block_size
        for request, start, count, samples in zip(
            plan.requests, chunks.starts, chunks.num_tokens, chunks.samples, strict=True
        ):
            token_id = next(sampled) if samples else None
            if request.finish_reason is not None:
                continue
            computed = start + count
            if computed // block_size > request.table.num_remembered:
                self.blocks.remember(request.table, request.token_ids, computed)
            if token_id is not None and request.beams is None:
                deltas.append((request.client_id, self._append(request, token_id)))
        if result.logprobs is not None or result.prompt_logprobs is not None:
            attach_scores(plan, result, deltas)
        if result.pooled is not None:
            attach_embeddings(plan, result, deltas)
        if self.roster.beam_groups:
            deltas += self._beams.step(plan, result, self._tell_search, now)
        self.counters.num_scheduled_tokens += plan.batch.total_tokens
        self.counters.num_decode_tokens += chunks.num_decodes
        return deltas

    def _postprocess_steps(self, plan: Plan, result: StepResult) -> list[tuple[str, TokenDelta]]:
        """Take in several steps of decodes; a stop token may only be in the last."""
        deltas = []
        num_requests, num_steps = len(plan.requests), plan.batch.num_steps
        for index, request in enumerate(plan.requests):
            request.token_ids.extend(result.token_ids[index::num_requests][:-1])
            request.num_computed_tokens += num_steps - 1
        remember_steps(self.blocks, plan.requests, num_steps)
        for index, request in enumerate(plan.requests):
            token_ids = result.token_ids[index::num_requests]
            delta = self._append(request, token_ids[-1])
            delta.token_ids = token_ids
            deltas.append((request.client_id, delta))
        self.counters.num_scheduled_tokens += num_steps * plan.batch.total_tokens
        self.counters.num_decode_tokens += num_steps * plan.batch.total_tokens
        return deltas

    def fail(self, request: Request, error: str) -> list[tuple[str, TokenDelta]]:
        """End a request that could not be computed; nothing of its KV is found again.

        Called before the step's `postprocess`, which leaves out what has ended. The answer is
        empty if it has ended already.
        """
        if request.finish_reason is not None:
            return []
        if request.beams is not None:
            return self._beams.fail(request.beams, error)
        self.blocks.forget(request.table)
        self.roster.end(request, FinishReason.ERROR)
        delta = TokenDelta(
            request_id=request.request_id,
            token_ids=[],
            finish_reason=FinishReason.ERROR,
            error=error,
        )
        return [(request.client_id, delta)]

    def num_reserved_blocks(self) -> int:
        """Return the predicted peak of occupancy, in blocks."""
        return self.ledger.num_reserved_blocks(self.roster.num_lacking_blocks())

    def num_yielding_blocks(self) -> int:
        """Return the part of them that background requests would give up."""
        return self.ledger.num_yielding_blocks(self.roster.num_lacking_blocks())

    def pressure(self) -> Pressure:
        """Return how near the engine is to each of its limits."""
        load = self.roster.load()
        waiting = sum(r.num_missing_tokens for r in self.waiting)
        return self.admission.pressure(load, load.prefill_tokens + waiting, len(self.running))

    def check_invariants(self) -> None:
        """Check queues, rows, blocks and ledger against each other; raises RuntimeError."""
        self.roster.check_invariants()

    def _append(self, request: Request, token_id: int) -> TokenDelta:
        token_ids = request.token_ids
        first = len(token_ids) == request.num_prompt_tokens
        if first:
            self._first_tokens.append(request)
            self.roster.release_followers(request, is_prompt_done=True)
        token_ids.append(token_id)
        reason = None
        # where a grammar has ended nothing can follow, whatever min_tokens says
        is_over = request.grammar is not None and request.grammar.is_finished
        if is_over or (token_id in request.stop_token_ids and request.may_stop):
            reason = FinishReason.STOP
        elif len(token_ids) >= request.max_length:
            reason = FinishReason.LENGTH
        delta = TokenDelta(request_id=request.request_id, token_ids=[token_id])
        if first:
            self._tell_start(request, delta)
        if reason is not None:
            self.roster.end(request, reason)
            delta.finish_reason = reason
            if self._ended_at is not None and request.first_token_at is not None:
                delta.decode_seconds = self._ended_at - request.first_token_at
        return delta

    def _tell_search(self, leader: Request) -> TokenDelta:
        """Tell a search's client that its prompt is done; the tokens come whole at its end."""
        self._first_tokens.append(leader)
        self._tell_start(leader, delta := TokenDelta(request_id=leader.request_id, token_ids=[]))
        return delta

    def _tell_start(self, request: Request, delta: TokenDelta) -> None:
        """With the first token, tell what the prefix cache had and how long the phases took."""
        delta.num_cached_tokens = request.num_cached_tokens
        delta.queue_seconds = request.queue_seconds
        request.first_token_at = self._ended_at
        if self._ended_at is not None and request.queue_seconds is not None:
            started_at = request.seniority[1] + request.queue_seconds
            delta.prefill_seconds = self._ended_at - started_at

    def _begin_step(self, now: float) -> float:
        """Do what is due before a step is planned; returns its time."""
        now = self._now = max(self._now, now)
        self._learn(now)
        self.roster.age(now - self._ageing_seconds)
        if self.waiting or self.admission.lulls.are_awaited:
            self._refuse_overdue(now)
        return now

    def _note(self, plan: Plan, now: float) -> None:
        """Remember when a step was planned."""
        for request in plan.requests[plan.batch.chunks.num_decodes :]:
            if request.queue_seconds is None:
                request.queue_seconds = now - request.seniority[1]
        self._last_step = (now, plan.batch.num_steps) if plan.requests else None

    def _learn(self, now: float) -> None:
        """Compare the last step, and the first tokens it brought, with what was predicted."""
        if self._last_step is not None:
            started_at, num_steps = self._last_step
            if now > started_at:  # else two were planned at once, the second one ahead
                self.pace.observe_step((now - started_at) / num_steps, num_steps)
            self._last_step = None
        for request in self._first_tokens:
            self.admission.learn(request, now)
        self._first_tokens.clear()
        self.ledger.learn()

    def _forget_last_step(self) -> None:
        """The time since then was idle: there is nothing to learn from it."""
        self._last_step = None
        self._first_tokens.clear()

    def _refuse_overdue(self, now: float) -> None:
        for request, refusal in self.admission.overdue(self.waiting, self.roster.load(), now):
            self.roster.end(request, FinishReason.REFUSED)
            self.counters.count_decision(refusal)
            self._refused.append((request, refusal))
