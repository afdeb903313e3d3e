"""Who may come in: by room on the predicted curve, by seats, by step time and by deadline.

    arrival ── judge ──► refused (429, with the time to try again)
                 │
                 └─────► waits ── has_room ──► starts
                           │
                           └── overdue ──► refused: the deadline can no longer be met

Running requests are never touched here: what was let in stays in. An engine that holds nothing
takes any request, whatever the ceilings say.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from quire_engine.kvcache.manager import PrefixMatch
from quire_engine.protocol.cost import (
    Occupancy,
    OccupancyCurve,
    tokens_until_below,
    tokens_until_given,
)
from quire_engine.protocol.messages import (
    FinishReason,
    Pressure,
    Priority,
    Thresholds,
    TokenDelta,
)
from quire_engine.scheduler.ledger import ReservationLedger
from quire_engine.scheduler.lulls import Lulls
from quire_engine.scheduler.pace import START_UNIT, Pace, PromptPace, StepLoad
from quire_engine.scheduler.prediction_error import PredictionError
from quire_engine.scheduler.request import Request

MIN_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0


class RefusalReason(StrEnum):
    """Why a request was not let in; the label of the metric that counts it."""

    QUEUE_FULL = "queue_full"
    NO_ROOM = "no_room"
    """It asked to start now, and blocks, seats or step time do not allow it."""
    DEADLINE = "deadline"
    """Its first token would come too late."""
    QUEUE_TIME = "queue_time"
    """It waited as long as a request may."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, and when to ask again."""

    reason: RefusalReason
    retry_after_seconds: float
    """Predicted seconds until there is room, without jitter; within 1 and 60."""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a request is expected to wait, in seconds."""

    for_room: float
    """Until blocks, seats and step time allow it, those ahead counted."""
    for_prompts: float
    """Until the prompts ahead are through."""
    own_prompt: float
    has_room: bool
    """Whether blocks, seats and step time allow it now; known even where seconds are not."""

    @property
    def until_first_token(self) -> float:
        """Room and the prompts ahead are waited for at the same time."""
        return max(self.for_room, self.for_prompts) + self.own_prompt


@dataclass(frozen=True, slots=True)
class RoomPrediction:
    """When there will be room."""

    seconds: float
    is_there: bool
    """Whether there is now: 0 seconds may also mean that no step's time is known yet."""


class AdmissionControl:
    """Judges requests by the ledger and the pace; changes nothing itself."""

    def __init__(
        self,
        ledger: ReservationLedger,
        pace: Pace,
        limits: Thresholds,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
    ) -> None:
        self.limits = limits
        self.ledger = ledger
        self.pace = pace
        self.errors = {priority: PredictionError() for priority in Priority}
        """Of first tokens predicted on arrival; background ones wait for others, and err more."""
        self.errors_of_started = {priority: PredictionError() for priority in Priority}
        """Of first tokens predicted when their prompts started."""
        self.lulls = Lulls()
        """Of the prompts ahead of a new interactive request."""
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs

    def judge(
        self,
        request: Request,
        match: PrefixMatch,
        occupancy: Occupancy,
        *,
        load: StepLoad,
        tokens_ahead: int,
        num_waiting: int,
        starts_now: bool,
        now: float,
    ) -> Refusal | None:
        """Say whether a request that arrives may wait or start; None is yes.

        Parameters
        ----------
        match
            What the prefix cache has of its prompt.
        load
            The decodes that run now.
        tokens_ahead
            Prompt tokens still to be computed before its own.
        num_waiting
            Requests that wait already.
        starts_now
            Whether it refuses to wait for room.
        """
        if num_waiting >= self.limits.max_waiting_requests:
            wait = self.predict_wait(request, match, occupancy, load, tokens_ahead)
            return _refuse(RefusalReason.QUEUE_FULL, wait.until_first_token)
        if self.ledger.is_empty and num_waiting == 0:
            return None
        wait = self.predict_wait(request, match, occupancy, load, tokens_ahead)
        request.predicted_first_token = now + wait.until_first_token
        if starts_now and not wait.has_room:
            return _refuse(RefusalReason.NO_ROOM, wait.for_room)
        if request.deadline is not None:
            error = self.errors[request.priority]
            late = error.lower(wait.until_first_token) - (request.deadline - now)
            if late > 0:
                if request.priority is Priority.INTERACTIVE and wait.for_prompts >= wait.for_room:
                    late = max(late, self.lulls.seconds_until(wait.for_prompts - late, now))
                return _refuse(RefusalReason.DEADLINE, late)
        return None

    def learn(self, request: Request, now: float) -> None:
        """Compare a request's first token with what was predicted on its arrival and start."""
        if request.predicted_first_token is not None:
            arrival = request.seniority[1]
            error = self.errors[request.priority]
            error.observe(request.predicted_first_token - arrival, now - arrival)
        if request.expected_first_token is not None:
            self.errors_of_started[request.priority].observe(request.expected_first_token, now)

    def has_room(
        self, occupancy: Occupancy | OccupancyCurve, level: Priority, num_lacking_blocks: int
    ) -> bool:
        """Whether a request may start beside those that are admitted.

        Parameters
        ----------
        occupancy
            Its own, or that of all that are to start.
        num_lacking_blocks
            What the running prompts still have to take.
        """
        if self.ledger.is_empty:
            return True
        return self._allows(self.ledger.curve(num_lacking_blocks).plus(occupancy), level)

    def has_room_if_background_yields(
        self, occupancy: OccupancyCurve, num_lacking_blocks: int
    ) -> bool:
        """Whether interactive requests may start beside the admitted interactive ones alone."""
        if self.ledger.is_background_only:
            return True
        others = self.ledger.curve_if_background_yields(num_lacking_blocks)
        return self._allows(others.plus(occupancy), Priority.INTERACTIVE)

    def has_room_again(self, num_lacking_blocks: int) -> bool:
        """Whether a preempted request may come back, which the curve still counts.

        Without a look ahead it would come back to the last free blocks, and take part in the next
        shortage at once.
        """
        return self.ledger.curve(num_lacking_blocks).peak(0.0) <= self._num_blocks

    def overdue(
        self, waiting: Iterable[Request], load: StepLoad, now: float
    ) -> list[tuple[Request, Refusal]]:
        """Return the waiting requests whose first token can no longer come in time.

        Asked before each step in which any waits or a lull is awaited, which is noted here.

        Requests that ran before and were preempted are not among them: they were let in.
        """
        late = []
        tokens_ahead = load.prefill_tokens - load.background_prefill_tokens
        background_tokens_ahead = load.background_prefill_tokens
        prompts = {priority: self.pace.beside(load, priority) for priority in Priority}
        oldest_arrival = now - self.limits.max_queue_seconds
        for request in waiting:
            if request.num_preemptions or request.leader is not None:
                continue
            own = request.num_missing_tokens
            is_background = request.priority is Priority.BACKGROUND
            ahead = tokens_ahead + (background_tokens_ahead if is_background else 0)
            if self._misses_deadline(request, ahead + own, prompts[request.priority], now):
                late.append((request, self._refuse_late(RefusalReason.DEADLINE, request, load)))
            elif request.seniority[1] < oldest_arrival:
                late.append((request, self._refuse_late(RefusalReason.QUEUE_TIME, request, load)))
            elif is_background:
                background_tokens_ahead += own
            else:
                tokens_ahead += own
        self.lulls.observe(now, prompts[Priority.INTERACTIVE].seconds(tokens_ahead, START_UNIT))
        return late

    def _misses_deadline(
        self, request: Request, num_tokens: int, prompts: PromptPace, now: float
    ) -> bool:
        """Whether the first token comes too late even if its prompt is next.

        Others that start meanwhile slow it down: by how much was learnt from those before it.
        """
        if request.deadline is None:
            return False
        expected = now + prompts.seconds(num_tokens, request.num_missing_tokens // 2)
        request.expected_first_token = expected
        return expected + self.errors_of_started[request.priority].margin() > request.deadline

    def predict_wait(
        self,
        request: Request,
        match: PrefixMatch,
        occupancy: Occupancy,
        load: StepLoad,
        tokens_ahead: int,
    ) -> Wait:
        """Predict a new request's wait behind all that are ordered before it."""
        own = request.num_prompt_tokens - match.num_tokens
        prompts = self.pace.beside(load, request.priority)
        for_room = self._predict_room(request.priority, occupancy, load.num_lacking_blocks)
        return Wait(
            for_room=for_room.seconds,
            has_room=for_room.is_there,
            for_prompts=prompts.seconds(tokens_ahead, own // 2),
            own_prompt=prompts.seconds(own, match.num_tokens + own // 2),
        )

    def pressure(self, load: StepLoad, tokens_ahead: int, num_running: int) -> Pressure:
        """Say how near each limit is.

        Parameters
        ----------
        tokens_ahead
            Prompt tokens still to be computed, of running and waiting requests.
        """
        reserved = self.ledger.num_reserved_blocks(load.num_lacking_blocks)
        first_token = self.limits.slo_time_to_first_token_seconds
        per_token = self.limits.slo_time_per_output_token_seconds
        prompts = self.pace.beside(load, Priority.INTERACTIVE).seconds(tokens_ahead, 0)
        step = self.pace.decode_seconds(load.num_decodes, load.context_tokens)
        return Pressure(
            blocks=reserved / (self.limits.admission * self._num_blocks),
            seats=num_running / self._max_num_seqs,
            first_token=prompts / first_token if first_token else 0.0,
            step=step / per_token if per_token else 0.0,
        )

    def _refuse_late(self, reason: RefusalReason, request: Request, load: StepLoad) -> Refusal:
        wait = self.predict_wait(request, PrefixMatch(), request.occupancy, load, 0)
        return _refuse(reason, wait.until_first_token)

    def _predict_room(
        self, level: Priority, occupancy: Occupancy, num_lacking_blocks: int
    ) -> "RoomPrediction":
        """Predict when blocks, seats and step time allow a request behind those that wait.

        Background requests make room for an interactive one at once, so it waits for the
        interactive ones alone. In a burst that meets an idle engine, those who will give room back
        are the ones ahead that find it now; else they are those that run. Counting both let more
        wait than were served in time: 1 to 3 % of chat's goodput on an L4.
        """
        running, ahead = self._running_and_ahead(level, num_lacking_blocks)
        together = running.plus(ahead).plus(occupancy)
        blocks = self._ceiling(level) * self._num_blocks
        lacks = (self._peak(together) - blocks, together.alive[0] - self._max_num_seqs)
        step_time_tokens = self._tokens_until_step_time(together)
        if max(lacks) <= 0.0 and step_time_tokens == 0.0:
            return RoomPrediction(0.0, is_there=True)
        starting = ahead.scaled(self._share_that_starts(running, ahead, blocks))
        is_burst = starting.alive[0] > running.alive[0]
        will_run = running.plus(starting) if is_burst else running
        num_tokens = max(
            tokens_until_given(will_run.mean, lacks[0]),
            tokens_until_given(will_run.alive, lacks[1]),
            step_time_tokens,
        )
        if num_tokens == inf:
            return RoomPrediction(inf, is_there=False)
        context_tokens = will_run.mean[0] * self._block_size
        pace = self.pace.seconds_per_token(will_run.alive[0], context_tokens)
        return RoomPrediction(num_tokens * pace, is_there=False)

    def _running_and_ahead(
        self, level: Priority, num_lacking_blocks: int
    ) -> tuple[OccupancyCurve, OccupancyCurve]:
        queued = self.ledger.queued
        if level == Priority.INTERACTIVE:
            running = self.ledger.curve_if_background_yields(num_lacking_blocks)
            return running, queued[Priority.INTERACTIVE]
        ahead = queued[Priority.INTERACTIVE].plus(queued[Priority.BACKGROUND])
        return self.ledger.curve(num_lacking_blocks), ahead

    def _share_that_starts(
        self, running: OccupancyCurve, ahead: OccupancyCurve, num_blocks: float
    ) -> float:
        """Return the share of the requests ahead that find blocks and seats beside what runs."""
        of_blocks = (num_blocks - self._peak(running)) / max(self._peak(ahead), 1.0)
        of_seats = (self._max_num_seqs - running.alive[0]) / max(ahead.alive[0], 1.0)
        return min(max(min(of_blocks, of_seats), 0.0), 1.0)

    def _allows(self, curve: OccupancyCurve, level: Priority) -> bool:
        if self._peak(curve) > self._ceiling(level) * self._num_blocks:
            return False
        return self._tokens_until_step_time(curve) == 0.0

    def _ceiling(self, level: Priority) -> float:
        interactive = level == Priority.INTERACTIVE
        return self.limits.admission if interactive else self.limits.background

    def _peak(self, curve: OccupancyCurve) -> float:
        """Blocks that must stay under the ceiling."""
        return curve.peak(self.ledger.safety.z)

    def _tokens_until_step_time(self, curve: OccupancyCurve) -> float:
        goal = self.limits.slo_time_per_output_token_seconds
        if goal is None:
            return 0.0
        most_tokens = max(curve.mean) * self._block_size
        if self.pace.decode_seconds(max(curve.alive), most_tokens) <= goal:
            return 0.0
        seconds = (
            self.pace.decode_seconds(alive, mean * self._block_size)
            for alive, mean in zip(curve.alive, curve.mean, strict=True)
        )
        return _or_never(tokens_until_below(seconds, goal))


def _or_never(num_tokens: float | None) -> float:
    return inf if num_tokens is None else num_tokens


def _refuse(reason: RefusalReason, seconds: float) -> Refusal:
    return Refusal(reason, min(max(seconds, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS))


def describe_refusal(request: Request, refusal: Refusal) -> TokenDelta:
    """Put a refusal into the words that the client gets."""
    return TokenDelta(
        request_id=request.request_id,
        token_ids=[],
        finish_reason=FinishReason.REFUSED,
        error=_WORDS[refusal.reason],
        retry_after_seconds=refusal.retry_after_seconds,
    )


_WORDS = {
    RefusalReason.QUEUE_FULL: "The engine's queue is full.",
    RefusalReason.NO_ROOM: "There is no room to start this request now.",
    RefusalReason.DEADLINE: "The first token would come after its deadline.",
    RefusalReason.QUEUE_TIME: "The request waited as long as it may.",
}
