"""One service: its engines, who waits, and who gets which engine.

    admit ──► an engine has room ──► Grant
         └──► queue ── a state, an end, a tick: dispatch ──► Grant
                └──── deadline: 429 with the time to try again

A grant is counted against its engine the moment it is made, before the request is on its way, so
that a burst between two states spreads.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Literal

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.choose import (
    Chance,
    Rooms,
    choose,
    choose_roomiest,
    count_uncached,
)
from quire_gateway.choosing.demand import Demand, Expectations
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.prefix_index import PrefixIndex
from quire_gateway.choosing.queue import FairQueue, Waiting
from quire_gateway.choosing.retry import count_cost, jitter, predict_wait
from quire_gateway.choosing.shares import TrafficShares
from quire_gateway.errors import ApiError, engines_failed, no_engine, no_room
from quire_gateway.routing.access import Access
from quire_gateway.routing.document import RoutingDocument
from quire_gateway.serving.arrivals import Arrivals
from quire_gateway.serving.directory import Served
from quire_gateway.serving.last_known import LastEngines
from quire_gateway.serving.lengths import Lengths
from quire_gateway.serving.ticket import Grant, Ticket

_MANY_HEADS = 64
"""So many turns are looked at when the first finds no room: a big request does not hold up smaller
ones, or those that share what is in flight."""
_MANY_CHOICES = 8
"""Of these so many may fail to find an engine though one has room for as much."""
_FIRST_ENGINE_SECONDS = 5.0
"""Who waited in vain for an engine need not come again before."""
HANG_SECONDS = 30.0
_HANG_FACTOR = 4.0
"""So many times as long as predicted an answer may take to begin, and `HANG_SECONDS` more."""
Tell = Callable[["Grant | ApiError"], None]
"""How who waited is told; soon, and not before the caller has returned."""

_PATIENT_SHARE = 0.75
"""For this share of its time who waits does so for an engine that has its prompt."""
_AGED_SHARE = 0.25
"""Who waited this share of the longest wait is given to an engine that holds room for it."""


class Service(Served):
    """One service.

    Parameters
    ----------
    next_counter
        Numbers this gateway's requests, rising.
    clock
        Seconds of the event loop.
    hang_seconds
        Beyond what is predicted, an engine may take so long to begin its answer.
    call_soon
        Calls a function with its arguments when the caller has returned; the running event loop's
        if none is given.
    """

    def __init__(
        self,
        document: RoutingDocument,
        *,
        next_counter: Callable[[], int],
        clock: Callable[[], float],
        chance: Chance,
        stale_seconds: float,
        hang_seconds: float = HANG_SECONDS,
        call_soon: Callable[..., object] | None = None,
    ) -> None:
        self.document, self.label = document, document.label
        self.access = Access(document, lambda seconds: jitter(seconds, chance))
        self.endpoints: list[Endpoint] = []
        self.index = PrefixIndex()
        self.queue = FairQueue(document.thresholds.max_waiting_requests)
        self.arrivals = Arrivals(clock())
        self.bad_states: Counter[str] = Counter()
        """States of engines that were not believed: refused, or corrected."""
        self._shares = TrafficShares()
        self._next_counter = next_counter
        self._clock = clock
        self._chance = chance
        self._stale_seconds = stale_seconds
        self._hang_seconds = hang_seconds
        self._call_soon = call_soon or asyncio.get_running_loop().call_soon
        self._waiting: dict[Waiting, tuple[Ticket, Tell]] = {}
        self._answers: dict[Waiting, Grant | ApiError] = {}
        """Of those that have waited and are about to be told."""
        self._holding: set[Endpoint] = set()
        self._why_closed: Callable[[], ApiError] | None = None
        self._last = LastEngines()
        self._lengths = Lengths(clock, self._last)
        self.update(document)

    @property
    def survival(self) -> Expectations:
        """How long answers run on, over all engines."""
        return self._lengths.survival(self.endpoints)

    def update(self, document: RoutingDocument) -> None:
        """Use another document of the same service."""
        self.document, self.label = document, document.label
        self.access.update(document, self._clock())
        self.queue.max_waiting = document.thresholds.max_waiting_requests
        self._shares.plan({one.name: one.traffic_share for one in document.accelerators})
        self._last.update(document)

    def add(self, endpoint: Endpoint) -> None:
        """Use another engine."""
        endpoint.lean = self._shares.lean(endpoint.accelerator)
        self.endpoints.append(endpoint)

    def hear(self, endpoint: Endpoint, state: EngineState) -> None:
        """An engine has told its state: who waits may find room now."""
        self.index.follow(endpoint.slot, state.prefix_chunks)
        self._last.hear(state)
        self.dispatch()

    def lose(self, endpoint: Endpoint) -> None:
        """An engine's stream of states has ended; its cache may be another one when it returns."""
        endpoint.lose()
        self.index.forget(endpoint.slot)

    def count_bad_state(self, what: str) -> None:
        """An engine has told something that cannot be so."""
        self.bad_states[what] += 1

    def ask(self, ticket: Ticket, without: Collection[Endpoint], tell: Tell) -> Grant | Waiting:
        """Return the engine that a request goes to, or who waits for one.

        Parameters
        ----------
        without
            Engines that failed on it; those that refused it say so to the endpoint.
        tell
            Called with what who waited gets, unless that is given up by `cancel`.

        Raises
        ------
        ApiError
            429 or 503, with the time to try again; what `close` was given; 502 where every engine
            hung on it.
        """
        if self._why_closed is not None:
            raise self._why_closed()
        if self.document.is_suspended:
            raise ApiError(
                503,
                "The service is suspended.",
                reason="suspended",
                retry_after_seconds=jitter(60.0, self._chance),
            )
        if ticket.hung_at and self.endpoints and ticket.hung_at.issuperset(self.endpoints):
            raise engines_failed()
        is_behind = bool(self._waiting) and any(
            not one.is_background or ticket.demand.is_background for one in self._waiting
        )
        if not is_behind:
            hits = self.index.hits(ticket.demand.chunks)
            endpoint = self._choose(ticket, hits, without)
            if endpoint is not None:
                return self._grant(endpoint, ticket, hits.get(endpoint.slot, 0))
        return self._wait(ticket, tell)

    def cancel(self, waiting: Waiting) -> None:
        """Who waits, or has just got an engine, does not want one any more."""
        answer = self._answers.pop(waiting, None)
        if isinstance(answer, Grant):
            self.release(answer)
        elif waiting in self._waiting:
            self._forget(waiting)

    def release(
        self, grant: Grant, unserved: Demand | None = None, *, has_left: bool = False
    ) -> None:
        """The request has ended at its engine, or will never get there.

        Parameters
        ----------
        unserved
            What was not served there: it is not expected to be cached there any more.
        has_left
            Whether the engine had it when its client left.
        """
        endpoint = grant.endpoint
        endpoint.end(grant.counter, gives_back=unserved is None and not has_left)
        chunks = unserved.chunks if unserved is not None else ()
        # another one that begins so may be computed there just now
        if chunks and endpoint in self.endpoints and not endpoint.is_sent(chunks[0]):
            self.index.retract(endpoint.slot, chunks)
        if grant.holds_room:
            self._holding.discard(endpoint)
        self.dispatch()

    def close(self, why: Callable[[], ApiError]) -> None:
        """Refuse who waits and who comes: nobody gets an engine any more; the first reason stays.

        Parameters
        ----------
        why
            Makes the error for each of them.
        """
        if self._why_closed is None:
            self._why_closed = why
        for waiting in list(self._waiting):
            _, tell = self._waiting[waiting]
            self._forget(waiting)
            self._tell_soon(waiting, tell, self._why_closed())

    def dispatch(self) -> None:
        """Give engines to those that wait, as far as there is room."""
        while self._waiting and self._dispatch_one():
            pass

    def tick(self) -> None:
        """Time has passed: refuse who is overdue, and look whether an engine came back."""
        now = self._clock()
        for waiting in self.queue.overdue(now) if self._waiting else ():
            ticket, tell = self._waiting[waiting]
            self._forget(waiting)
            self._tell_soon(waiting, tell, self._refuse(ticket, "deadline"))
        self.index.expire(now)
        self.dispatch()

    @property
    def max_model_len(self) -> int:
        """See `Served`."""
        lengths = [one.state.max_model_len for one in self.endpoints if one.state is not None]
        if not lengths and (last := self._last.known) is not None:
            return last.max_model_len
        return max(lengths, default=0)

    def has_eligible(self) -> bool:
        """Whether any engine takes requests."""
        now = self._clock()
        return any(one.is_eligible(now, self._stale_seconds) for one in self.endpoints)

    def _choose(
        self,
        ticket: Ticket,
        hits: Mapping[int, int],
        without: Collection[Endpoint],
        *,
        is_patient: bool = False,
    ) -> Endpoint | None:
        return choose(
            self.endpoints,
            ticket.demand,
            hits,
            now=self._clock(),
            chance=self._chance,
            without=without,
            is_patient=is_patient,
            stale_seconds=self._stale_seconds,
        )

    def _grant(
        self, endpoint: Endpoint, ticket: Ticket, num_hits: int, holds_room: bool = False
    ) -> Grant:
        grant = Grant(endpoint, self._next_counter(), holds_room=holds_room)
        demand, now = ticket.demand, self._clock()
        num_uncached = count_uncached(demand, num_hits)
        seconds = endpoint.predict_first_byte(demand, num_uncached, now, is_stream=ticket.is_stream)
        if holds_room:
            seconds += self.document.thresholds.max_queue_seconds
        grant.first_byte_seconds = self._hang_seconds + _HANG_FACTOR * seconds
        grant.num_blocks = endpoint.take(grant.counter, demand, num_hits, num_uncached, now)
        if endpoint.has_prefix_cache:
            self.index.expect(endpoint.slot, demand.chunks, now)
        self._shares.send(endpoint.accelerator, num_uncached + demand.num_output_tokens)
        if holds_room:
            self._holding.add(endpoint)
        return grant

    def _wait(self, ticket: Ticket, tell: Tell) -> Waiting:
        if self.queue.is_full:
            raise self._refuse(ticket, "queue_full")
        leaves_at = self._leaves_at(ticket)
        if not self.has_eligible():
            # the time to its first token was promised of engines: it counts when there is one
            ticket.demand.deadline_seconds = ticket.own_deadline
        if self._predict(ticket) > leaves_at - self._clock():
            raise self._refuse(ticket, "deadline")
        waiting = Waiting(
            key=ticket.key.name,
            is_background=ticket.demand.is_background,
            cost=count_cost(ticket.demand, self.endpoints, self.index.hits(ticket.demand.chunks)),
            arrived_at=ticket.arrived_at,
            leaves_at=leaves_at,
        )
        self.queue.add(waiting)
        self._waiting[waiting] = ticket, tell
        return waiting

    def _tell_soon(self, waiting: Waiting, tell: Tell, answer: Grant | ApiError) -> None:
        self._answers[waiting] = answer
        self._call_soon(self._tell, waiting, tell)

    def _tell(self, waiting: Waiting, tell: Tell) -> None:
        answer = self._answers.pop(waiting, None)
        if answer is not None:
            tell(answer)

    def _leaves_at(self, ticket: Ticket) -> float:
        """When it is refused: its deadline, or the longest wait; longer while no engine is there.

        Background requests wait as long as may be waited, unless they have a deadline of their own.
        """
        longest, deadline = self.document.thresholds.max_queue_seconds, ticket.own_deadline
        if self.has_eligible():
            deadline = ticket.demand.deadline_seconds
        elif not self._has_live():
            longest = max(longest, self.document.cold_start_queue_seconds)
        return min(ticket.arrived_at + longest, inf if deadline is None else deadline)

    def _has_live(self) -> bool:
        """Whether any engine is there, and be it one that is left alone after failures."""
        now = self._clock()
        return any(one.is_live(now, self._stale_seconds) for one in self.endpoints)

    def _dispatch_one(self) -> bool:
        rooms, num_failed = Rooms(self.endpoints, self._clock(), self._stale_seconds), 0
        for waiting in self.queue.heads(_MANY_HEADS):
            ticket, tell = self._waiting[waiting]
            endpoint = None
            hits = self.index.hits(ticket.demand.chunks)
            if num_failed < _MANY_CHOICES and rooms.may_fit(ticket.demand, hits):
                is_patient = self._has_waited(waiting) < _PATIENT_SHARE
                endpoint = self._choose(ticket, hits, ticket.hung_at, is_patient=is_patient)
                num_failed += endpoint is None
            holds_room = endpoint is None and self._is_aged(waiting)
            if holds_room:
                unable = self._holding | ticket.hung_at
                able = [one for one in self.endpoints if one not in unable]
                now, stale = self._clock(), self._stale_seconds
                endpoint = choose_roomiest(able, ticket.demand, now=now, stale_seconds=stale)
            if endpoint is None:
                continue
            self.queue.take(waiting)
            del self._waiting[waiting]
            num_hits = hits.get(endpoint.slot, 0)
            self._tell_soon(waiting, tell, self._grant(endpoint, ticket, num_hits, holds_room))
            return True
        return False

    def _has_waited(self, waiting: Waiting) -> float:
        """Return for what share of its time it has waited."""
        longest = waiting.leaves_at - waiting.arrived_at
        return (self._clock() - waiting.arrived_at) / longest if longest > 0.0 else 1.0

    def _is_aged(self, waiting: Waiting) -> bool:
        patience = _AGED_SHARE * self.document.thresholds.max_queue_seconds
        return self._clock() - waiting.arrived_at > patience

    def _forget(self, waiting: Waiting) -> None:
        del self._waiting[waiting]
        self.queue.remove(waiting)

    def _predict(self, ticket: Ticket) -> float:
        """Seconds until its turn; without an engine from when there is one, if that is known."""
        if not self.has_eligible():
            last = self._last.known
            return last.predict_wait(ticket.demand, self.queue.total_cost) if last else 0.0
        return predict_wait(self.endpoints, ticket.demand, self.queue.total_cost)

    def _refuse(self, ticket: Ticket, reason: Literal["queue_full", "deadline"]) -> ApiError:
        seconds = self._predict(ticket)
        if not self.has_eligible():
            return no_engine(jitter(max(seconds, _FIRST_ENGINE_SECONDS), self._chance))
        return no_room(reason, jitter(seconds, self._chance))
