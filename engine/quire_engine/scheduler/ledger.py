"""The reservation ledger: how many blocks the accepted requests will need, and when.

    queued ──start──► admitted ──────────────► ended
      ▲                  │    counted at its predicted occupancy, through preemptions too
      └─────requeue──────┘    only background: what gives way is promised nothing
    nothing reserved

The curve of the admitted is computed when it is asked for, and shifted so that its first point is
what the pool really holds. New predictions close or open admission; they never stop a request that
runs.
"""

from collections.abc import Iterable, Sequence

from quire_engine.kvcache.manager import BlockManager
from quire_engine.profiles.output_length import OutputLengthSketch
from quire_engine.profiles.output_length_by_prompt import OutputLengthByPrompt
from quire_engine.protocol.cost import NOTHING, Occupancy, OccupancyCurve, predict_occupancy
from quire_engine.protocol.messages import FinishReason, Priority
from quire_engine.scheduler.dispersion import Dispersion, Expectation
from quire_engine.scheduler.occupancy_table import OccupancyTable
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.safety import SafetyMargin

REFRESH_ENDS = 16
"""After so many ended requests the survival estimate is made anew."""

COMPARE_SHARE = 0.25
"""After ends of so many of those that run, predictions are compared with what came, again."""


class ReservationLedger:
    """Predicted occupancy of admitted requests, and of those that wait.

    Parameters
    ----------
    lengths
        Outputs seen so far; the ledger adds each request that ends.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        lengths: OutputLengthSketch | None = None,
    ) -> None:
        self.safety = SafetyMargin()
        self.dispersion = Dispersion()
        self.queued = {priority: OccupancyCurve() for priority in Priority}
        """What the waiting requests would add, by the class they are ordered in."""
        self._blocks = blocks
        self._lengths = OutputLengthByPrompt(lengths)
        self._table = OccupancyTable(self._lengths, block_size=blocks.block_size)
        self._ends_until_refresh = REFRESH_ENDS
        self._ends_until_comparison = 0
        self._queued: dict[str, Request] = {}
        self._admitted: dict[str, Request] = {}
        self.num_queued_blocks = 0
        """Blocks that the waiting requests' known tokens will take."""
        self._suspended: dict[str, int] = {}
        """Blocks that preempted requests will take again."""
        self._num_yielding = 0

    @property
    def lengths(self) -> OutputLengthSketch:
        """Outputs seen so far, of all requests."""
        return self._lengths.overall

    def curve(self, num_lacking_blocks: int) -> OccupancyCurve:
        """Return the predicted occupancy of all admitted requests.

        Parameters
        ----------
        num_lacking_blocks
            What the running prompts still have to take: admitted, but not held yet.
        """
        return self._as_held(self._table.total(), num_lacking_blocks)

    def curve_if_background_yields(self, num_lacking_blocks: int) -> OccupancyCurve:
        """Return the predicted occupancy without the requests that would give way.

        It scatters like the others' alone: the part is taken before its variance is widened.
        """
        if not self._num_yielding:
            return self.curve(num_lacking_blocks)
        rest = self._table.total().minus(self._table.of_background())
        return self._as_held(rest, num_lacking_blocks)

    def num_reserved_blocks(self, num_lacking_blocks: int) -> int:
        """Upper end of the predicted occupancy's peak: at least what is held."""
        if not self._admitted:
            return self._blocks.pool.num_held
        peak = self.curve(num_lacking_blocks).peak(self.safety.z)
        return max(round(peak), self._blocks.pool.num_held)

    def num_yielding_blocks(self, num_lacking_blocks: int) -> int:
        """By how much the reserved blocks fall if all background requests give way."""
        if not self._num_yielding:
            return 0
        rest = self.curve_if_background_yields(num_lacking_blocks).peak(self.safety.z)
        return max(self.num_reserved_blocks(num_lacking_blocks) - round(rest), 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is admitted."""
        return not self._admitted

    @property
    def has_background(self) -> bool:
        """Whether anything admitted would give way to interactive requests."""
        return self._num_yielding > 0

    @property
    def is_background_only(self) -> bool:
        """Whether everything admitted would."""
        return self._num_yielding == len(self._admitted)

    def is_suspended(self, request: Request) -> bool:
        """Whether a waiting request is on the curve: it was preempted, and is to come back."""
        return request.request_id in self._suspended

    def predict(self, request: Request, *, num_shared_blocks: int = 0) -> Occupancy:
        """Predict the occupancy of a request that holds nothing yet.

        Parameters
        ----------
        num_shared_blocks
            Blocks of its known prefix that running requests hold: they cost no room. An evictable
            hit saves computing only, and is not among them.
        """
        num_tokens = len(request.token_ids)
        return predict_occupancy(
            private_tokens=num_tokens - num_shared_blocks * self._blocks.block_size,
            block_size=self._blocks.block_size,
            num_generated=num_tokens - request.num_prompt_tokens,
            max_remaining_tokens=request.max_length - num_tokens,
            survival=self._lengths.curve(request.num_prompt_tokens).survival,
        )

    def num_lacking_blocks(self, request: Request) -> int:
        """Return the blocks that a request's known tokens need beyond those it holds.

        A leader's are those of the beams that are yet to join it as well.
        """
        lacking = max(self._blocks.num_missing(request.table, len(request.token_ids)), 0)
        return lacking + self.num_blocks_to_join(request)

    def num_blocks_to_join(self, request: Request) -> int:
        """Return the blocks that beams will take which still wait for their leader's prompt."""
        if request.beams is None or request.leader is not None:
            return 0
        return sum(self.num_blocks_to_start(f) for f in request.beams.absent if f is not request)

    def num_blocks_to_start(self, request: Request) -> int:
        """Return the blocks that a waiting request's known tokens will take."""
        if request.shares_prompt:
            return 1
        num_joint = request.num_joint_tokens // self._blocks.block_size
        return self._blocks.num_blocks_for(len(request.token_ids)) - num_joint

    def queue(self, request: Request, occupancy: Occupancy) -> None:
        """Count a request that waits for a start, reserving nothing."""
        self._queued[request.request_id] = request
        request.occupancy = occupancy
        self.queued[request.level].replace(NOTHING, occupancy)
        self.num_queued_blocks += self.num_blocks_to_start(request)

    def requeue(self, request: Request) -> None:
        """Count a background request that gave way as one that waits: its place is another's."""
        self._remove_admitted(request)
        num_joint = request.num_joint_tokens // self._blocks.block_size
        self.queue(request, self.predict(request, num_shared_blocks=num_joint))

    def promote(self, request: Request) -> None:
        """Move a request's count from the background to the interactive class: it has aged."""
        if request.request_id in self._queued:
            self.queued[Priority.BACKGROUND].replace(request.occupancy, NOTHING)
            self.queued[Priority.INTERACTIVE].replace(NOTHING, request.occupancy)
        else:
            self._table.promote(request)
            self._num_yielding -= 1

    def admit(self, request: Request) -> None:
        """Reserve for a request that starts; an interactive one is admitted until it ends."""
        self._unqueue(request)
        if self._suspended.pop(request.request_id, None) is None:
            self._num_yielding += request.level is Priority.BACKGROUND
            self._admitted[request.request_id] = request
            self._table.add(request)
        if request.num_preemptions == 0:
            request.length_number = self._lengths.begin()

    def suspend(self, request: Request) -> None:
        """Count what an interactive request gave back as promised to it: it will come again."""
        self._suspended[request.request_id] = self.num_blocks_to_start(request)

    def grow(self, requests: Sequence[Request], num_tokens: int) -> None:
        """Note that each of these has so many more tokens, or will have when it is next asked.

        Requests among them that have ended are left out.
        """
        self._table.grow(requests, num_tokens)

    def recount(self, requests: Sequence[Request]) -> None:
        """Note that these have other tokens than they had: another number of them, or others."""
        self._table.recount(requests)

    def end(self, request: Request, reason: FinishReason) -> None:
        """Forget a request in whichever state it was, and learn from its length."""
        self._unqueue(request)
        self._suspended.pop(request.request_id, None)
        if request.request_id not in self._admitted:
            return
        self.safety.count_end()
        self._remove_admitted(request)
        num_generated = len(request.token_ids) - request.num_prompt_tokens
        self._lengths.add(
            request.num_prompt_tokens,
            num_generated,
            ended=reason is FinishReason.STOP,
            number=request.length_number,
        )
        self._ends_until_refresh -= 1
        self._ends_until_comparison -= 1

    def learn(self) -> None:
        """Estimate anew after some ends; to be called between steps.

        Within a step, some requests have their newest tokens and others do not.
        """
        if self._ends_until_refresh > 0:
            return
        self._ends_until_refresh = REFRESH_ENDS
        self._lengths.refresh(
            (r.num_prompt_tokens, len(r.token_ids) - r.num_prompt_tokens, r.length_number)
            for r in self._admitted.values()
        )
        self._table.update()
        self.dispersion.settle()
        if self._ends_until_comparison <= 0:
            self._ends_until_comparison = round(COMPARE_SHARE * len(self._admitted))
            self.dispersion.note(self._expect())

    def check_invariants(self, requests: Iterable[Request]) -> None:
        """Check that exactly these requests are counted, each once; raises RuntimeError."""
        known = {request.request_id for request in requests}
        if self._queued.keys() & self._admitted.keys():
            raise RuntimeError("bug: a request is queued and admitted at the same time")
        if self._queued.keys() | self._admitted.keys() != known:
            raise RuntimeError("bug: the ledger counts other requests than the scheduler has")
        if not self._suspended.keys() <= self._admitted.keys():
            raise RuntimeError("bug: a request is suspended that was not admitted")
        queued = sum(map(self.num_blocks_to_start, self._queued.values()))
        if self.num_queued_blocks != queued:
            raise RuntimeError("bug: the ledger's sum of queued blocks is wrong")
        yielding = [r for r in self._admitted.values() if r.level is Priority.BACKGROUND]
        if self._num_yielding != len(yielding):
            raise RuntimeError("bug: the ledger's number of background requests is wrong")
        self._table.check_invariants(self._admitted.values())

    def _remove_admitted(self, request: Request) -> None:
        del self._admitted[request.request_id]
        self._table.remove(request)
        self._num_yielding -= request.level is Priority.BACKGROUND

    def _as_held(self, part: OccupancyCurve, num_lacking_blocks: int) -> OccupancyCurve:
        """Widen a part of the curve, and shift it by its share of what the pool holds beyond it."""
        total = self._table.total()
        suspended = sum(self._suspended.values())
        now = self._blocks.pool.num_held + num_lacking_blocks + suspended
        beyond = (now - total.mean[0]) / max(total.alive[0], 1.0)
        return self.dispersion.widened(part).shifted(beyond * part.alive[0])

    def _expect(self) -> list[Expectation]:
        """Say what is expected of all admitted requests when about half of them still run."""
        alive = self._table.total().alive
        column = min(range(len(alive)), key=lambda index: abs(alive[index] - 0.5 * alive[0]))
        return [Expectation(*expected) for expected in self._table.expect(column)]

    def _unqueue(self, request: Request) -> None:
        if self._queued.pop(request.request_id, None) is not None:
            self.queued[request.level].replace(request.occupancy, NOTHING)
            request.occupancy = NOTHING
            self.num_queued_blocks -= self.num_blocks_to_start(request)
