"""Room for requests that wait, and background requests that give way to make it.

An interactive request that finds no row, no blocks or no room on the predicted curve takes the
place of background requests, as many as it needs, before the step is planned. None gives way in
vain: only if the request would fit beside the interactive ones alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from quire_engine.kvcache.manager import PrefixMatch
from quire_engine.protocol.cost import NOTHING, Occupancy, OccupancyCurve, sum_occupancies
from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.admission import AdmissionControl
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.roster import Roster
from quire_engine.scheduler.victims import choose_displaced

MAX_TIMES_PASSED = 16
"""So many younger requests may start past one that does not fit; then all wait for it."""

MAX_BLOCKED = 8
"""A step looks past at most so many requests that do not fit."""


@dataclass(slots=True)
class Promised:
    """What requests take that will start in the coming step."""

    num_rows: int = 0
    num_blocks: int = 0
    curve: OccupancyCurve = field(default_factory=OccupancyCurve)
    num_interactive_tokens: int = 0
    """Prompt tokens of the interactive ones of them."""


class Room:
    """Says who fits, and makes room for interactive requests."""

    def __init__(self, roster: Roster, admission: AdmissionControl) -> None:
        self._roster = roster
        self._blocks = roster.blocks
        self._ledger = roster.ledger
        self._admission = admission

    def fits(
        self,
        request: Request,
        match: PrefixMatch,
        num_lacking_blocks: int,
        promised: Promised | None = None,
    ) -> bool:
        """Whether all known tokens find blocks beside what is promised, and one to go on.

        It also needs room on the predicted curve, as new or as one that comes back, unless
        nothing runs: then the most senior one starts in any case.

        Parameters
        ----------
        num_lacking_blocks
            What the running prompts still have to take.
        promised
            What others take that start before it, but do not run yet.
        """
        running = self._roster.running
        num_others = num_lacking_blocks + (promised.num_blocks if promised else 0)
        needed = self._num_blocks_to_start(request, match) + num_others
        if needed + (1 if running else 0) > self._blocks.pool.num_free:
            return False
        if not running and promised is None:
            return True
        if self._ledger.is_suspended(request):
            return self._admission.has_room_again(num_others)
        own = _occupancy(request)
        occupancy = promised.curve.plus(own) if promised else own
        return self._admission.has_room(occupancy, request.priority, num_lacking_blocks)

    def displace_background(self) -> int:
        """Preempt background requests until interactive ones that wait find rows and room.

        Returns
        -------
        Prompt tokens of the interactive requests that find them; 0 if there is no background.
        """
        if not self._ledger.has_background:
            return 0
        promised = Promised()
        blocked: list[Request] = []
        for request in islice(self._roster.waiting, MAX_BLOCKED):
            if request.level is Priority.BACKGROUND or must_wait_for(blocked, request):
                break
            if self._make_room_for(request, promised):
                match = self._roster.match(request)
                promised.num_rows += request.num_rows
                promised.num_blocks += self._num_blocks_to_start(request, match)
                if not self._ledger.is_suspended(request):
                    promised.curve.replace(NOTHING, _occupancy(request))
                if not request.has_aged:
                    promised.num_interactive_tokens += request.num_missing_tokens - match.num_tokens
            else:
                blocked.append(request)
        return promised.num_interactive_tokens

    def _make_room_for(self, request: Request, promised: Promised) -> bool:
        """Let as many background requests give way as it needs; returns whether it fits."""
        while not self._can_start(request, promised):
            if not self._is_worth_it(request, promised):
                return False
            displaced = choose_displaced(self._roster.running)
            if displaced is None:
                return False
            self._roster.preempt(displaced)
            self._roster.counters.num_displacements += 1
        return True

    def _can_start(self, request: Request, promised: Promised) -> bool:
        if len(self._roster.free_rows) < promised.num_rows + request.num_rows:
            return False
        match = self._roster.match(request)
        return self.fits(request, match, self._roster.num_lacking_blocks(), promised)

    def _is_worth_it(self, request: Request, promised: Promised) -> bool:
        """Whether it would fit if all background requests gave way; an aged one takes no place."""
        if request.has_aged:
            return False
        is_counted = self._ledger.is_suspended(request)
        own = promised.curve if is_counted else promised.curve.plus(_occupancy(request))
        return self._admission.has_room_if_background_yields(own, self._roster.num_lacking_blocks())

    def _num_blocks_to_start(self, request: Request, match: PrefixMatch) -> int:
        """Blocks that its known tokens take, and those of the beams that it leads."""
        known = self._blocks.num_blocks_for(len(request.token_ids)) - match.num_shared
        return known + self._ledger.num_blocks_to_join(request)


def _occupancy(request: Request) -> Occupancy:
    """What a request that waits is expected to hold, with the beams that it leads."""
    if request.beams is None:
        return request.occupancy
    return sum_occupancies(member.occupancy for member in request.beams.members)


def must_wait_for(blocked: Iterable[Request], request: Request) -> bool:
    """Whether one that does not fit may not be passed (again) by this request.

    Interactive requests pass background ones freely: those have a lower ceiling, which interactive
    work alone may keep them from for long.
    """
    return any(
        other.holds_room or other.num_times_passed >= MAX_TIMES_PASSED
        for other in blocked
        if other.priority <= request.priority
    )
