"""Claims that are decided in another process; by this one while that is silent.

Ask ──► Go ──► Settled ──► the end, or Go to another engine
 └──► silent, or gone: the least loaded engine, or a wait until there is one
"""

import logging
from collections.abc import Callable

from quire_gateway.choosing.retry import jitter
from quire_gateway.errors import ApiError, no_engine, no_room
from quire_gateway.routing.document import ApiKey
from quire_gateway.serving.claim import Claim, TellWay, Tries, tell_nobody
from quire_gateway.serving.link import Link, Way
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.relay import Outcome
from quire_gateway.serving.wish import Wish
from quire_gateway.workers import frames
from quire_gateway.workers.channel import Channel
from quire_gateway.workers.services import Chance, WorkerDirectory, WorkerService
from quire_gateway.workers.totals import totals_of

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 5.0
"""Nobody predicts when there will be an engine."""
_LEFT = Outcome("broken", reason="client_left")

DeciderChannel = Channel[frames.FromDecider]


class RemoteCourt:
    """Makes a worker's claims, and talks with the decider.

    Parameters
    ----------
    name
        Under which engines report requests that nobody decided.
    refresh
        Reads what the decider has published, now.
    """

    def __init__(
        self,
        directory: WorkerDirectory,
        metrics: GatewayMetrics,
        *,
        name: str,
        chance: Chance,
        clock: Callable[[], float],
        refresh: Callable[[], None],
    ) -> None:
        self.metrics = metrics
        self.chance = chance
        self.clock = clock
        self.refresh = refresh
        self.name = name.encode()
        self.decider = b""
        """Under which engines report what it decided."""
        self.is_hanging = False
        """Whether nothing was published for too long."""
        self._directory = directory
        self._channel: DeciderChannel | None = None
        self._claims: dict[int, RemoteClaim] = {}
        """Those that the decider knows of."""
        self._held: set[RemoteClaim] = set()
        self._num_asked = self._num_alone = 0
        self._why_closed: Callable[[], ApiError] | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nobody decides."""
        return self._channel is None or self.is_hanging

    def claim(self, service: WorkerService, key: ApiKey, wish: Wish, tell: TellWay) -> Claim:
        """Make a request's claim."""
        return RemoteClaim(service, key, wish, tell, self)

    def check_open(self) -> None:
        """See that this worker does not end.

        Raises
        ------
        ApiError
            It does.
        """
        if self._why_closed is not None:
            raise self._why_closed()

    def close(self, why: Callable[[], ApiError]) -> None:
        """Refuse who waits for an engine or will ask for one."""
        self._why_closed = why
        for claim in [one for one in self._claims.values() if one.is_waiting] + list(self._held):
            claim.refuse(why())

    def ask(self, claim: "RemoteClaim") -> int:
        """Ask the decider; returns the request's number there."""
        self._num_asked += 1
        self._claims[self._num_asked] = claim
        digest, wish = claim.key.sha256, claim.wish
        self.send(frames.Ask(self._num_asked, claim.service.key, digest, wish))
        return self._num_asked

    def send(self, frame: frames.Frame) -> None:
        """Tell the decider, if there is one."""
        if self._channel is not None:
            self._channel.send(frame)

    def send_later(self, frame: frames.Frame) -> None:
        """Tell the decider what it does not wait for."""
        if self._channel is not None:
            self._channel.send_later(frame)

    def forget(self, number: int) -> None:
        """The decider knows nothing of it any more."""
        self._claims.pop(number, None)

    def hold(self, claim: "RemoteClaim") -> None:
        """Let it wait for an engine."""
        self._held.add(claim)

    def let_go(self, claim: "RemoteClaim") -> None:
        """It does not wait any more."""
        self._held.discard(claim)

    def next_alone(self) -> int:
        """Return the counter of a request that nobody decides."""
        self._num_alone += 1
        return self._num_alone

    def look(self) -> None:
        """Time has passed: who waits may be told now, or has waited as long as may be."""
        if self.is_silent:
            for claim in [one for one in self._claims.values() if one.is_waiting]:
                claim.go_alone()
        for claim in list(self._held):
            claim.look()

    def tell_totals(self) -> None:
        """Say what was counted, unasked: who is killed takes along only what came after it."""
        if self._channel is not None:
            self._channel.send(totals_of(self.metrics, 0))

    def on_open(self, channel: DeciderChannel) -> None:
        """There is a connection: the decider is one once it says so."""

    def on_lost(self, channel: DeciderChannel) -> None:
        """The decider is gone: it knows of no request any more."""
        if channel is not self._channel:
            return
        self._channel = None
        _log.warning("the deciding process is gone: requests go to the least loaded engine")
        claims, self._claims = list(self._claims.values()), {}
        for claim in claims:
            claim.lose_decider()

    def on_frame(self, channel: DeciderChannel, frame: frames.FromDecider) -> None:
        """Take what the decider says."""
        if isinstance(frame, frames.Go):
            claim = self._claims.get(frame.number)
            if claim is not None:
                claim.go(frame)
        elif isinstance(frame, frames.Refused):
            claim = self._claims.pop(frame.number, None)
            if claim is not None:
                claim.end_waiting(frames.error_of(frame))
        elif isinstance(frame, frames.Welcome):
            self.decider, self._channel, self.is_hanging = frame.gateway.encode(), channel, False
            self.look()
        elif isinstance(frame, frames.Silent):
            self._directory.end_answers_of(frame.service, frame.address, "silent")
        else:
            channel.send(totals_of(self.metrics, frame.inquiry))


class RemoteClaim(Claim):
    """One request's claim, as a worker has it."""

    __slots__ = (
        "_alone_at",
        "_court",
        "_failed",
        "_number",
        "_tell",
        "_tries",
        "_was_counted",
        "is_waiting",
        "key",
        "service",
        "wish",
    )

    def __init__(
        self, service: WorkerService, key: ApiKey, wish: Wish, tell: TellWay, court: RemoteCourt
    ) -> None:
        self.service = service
        self.key = key
        self.wish = wish
        self.is_waiting = False
        """Whether it asked, and was not answered."""
        self._tell = tell
        self._court = court
        self._number = 0
        """At the decider; 0 if that knows nothing of it."""
        self._was_counted = False
        self._alone_at = ""
        """The engine that it went to without being sent there."""
        self._failed: set[str] = set()
        self._tries = Tries()

    def open(self) -> Way | None:
        """See `Claim`."""
        if self._court.is_silent:
            size = float(self.wish.num_prompt_tokens)
            self.service.access.spend(self.key, size, self._court.clock())
        return self._ask()

    def settle(self, outcome: Outcome, first_byte_at: float | None) -> Way | None:
        """See `Claim`."""
        if not self._number:
            return self._settle_alone(outcome, first_byte_at)
        report = frames.report_of(outcome, first_byte_at)
        settled = frames.Settled(self._number, report)
        if outcome.is_over:
            self._court.send_later(settled)  # mostly the next request is asked for just now
            self._forget()
            self._tell = tell_nobody  # it leads back here: a cycle for the garbage collector
            return None
        self._court.send(settled)
        try:
            self._court.check_open()
        except ApiError:
            self.cancel(was_sent=False)
            raise
        self.is_waiting = True
        return None

    def cancel(self, *, was_sent: bool) -> None:
        """See `Claim`."""
        self._court.let_go(self)
        self.is_waiting = False
        if self._number:
            self._court.send(frames.Left(self._number, was_sent))
            self._forget()
        else:
            self._leave_alone()
            if was_sent:
                self._report_alone(_LEFT, None)

    def go(self, frame: frames.Go) -> None:
        """The decider has found an engine."""
        link = self._find(frame.address)
        if link is None:
            gone = Outcome("failed", reason="gone", is_nobodys_fault=True)
            self._court.send(frames.Settled(self._number, frames.report_of(gone, None)))
            return
        self.is_waiting = False
        self._tell(
            Way(
                link,
                self._court.decider,
                frame.counter,
                frame.holds_room,
                frame.first_byte_seconds,
                frame.is_unpromised,
            )
        )

    def end_waiting(self, answer: Exception | Way) -> None:
        """The wait is over; the decider knows nothing of it any more."""
        self._number, self.is_waiting = 0, False
        self._tell(answer)

    def refuse(self, error: ApiError) -> None:
        """End its wait: this worker ends."""
        self.cancel(was_sent=False)
        self._tell(error)

    def lose_decider(self) -> None:
        """The decider is gone; at its engine the request goes on."""
        self._number, self._was_counted = 0, False
        if self.is_waiting:
            self.go_alone()

    def go_alone(self) -> None:
        """Nobody decides on it: do so here, or let it wait."""
        self.is_waiting = False
        if self._number:
            self._court.send(frames.Left(self._number, was_sent=False))
            self._forget()
            self._was_counted = True
        self._court.hold(self)
        self.look()

    def look(self) -> None:
        """Look whether it has to wait on."""
        self._court.let_go(self)
        if self._court.clock() >= self._leaves_at():
            self._tell(self._overdue())
            return
        try:
            way = self._ask()
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._tell(error)
        else:
            if way is not None:
                self._tell(way)

    def _ask(self) -> Way | None:
        self._court.check_open()
        if not self._court.is_silent:
            self._number = self._court.ask(self)
            self.is_waiting = True
            return None
        link = self.service.choose_alone(self._failed, self._court.chance)
        if link is None:
            self._court.hold(self)
            return None
        self.service.num_sent[link.address] += 1
        self._alone_at = link.address
        return Way(link, self._court.name, self._court.next_alone(), holds_room=True)

    def _settle_alone(self, outcome: Outcome, first_byte_at: float | None) -> Way | None:
        address = self._alone_at
        self._leave_alone()
        if outcome.is_over:
            self._report_alone(outcome, first_byte_at)
            return None
        metrics, label = self._court.metrics, self.service.label
        metrics.retries.labels(label, outcome.reason).inc()
        if outcome.kind == "failed" and not outcome.is_nobodys_fault:
            self._failed.add(address)
            metrics.failures.labels(label, outcome.reason).inc()
        self._tries.count(outcome)
        return self._ask()

    def _leave_alone(self) -> None:
        if self._alone_at:
            self.service.num_sent[self._alone_at] -= 1
            self._alone_at = ""

    def _report_alone(self, outcome: Outcome, first_byte_at: float | None) -> None:
        report = frames.report_of(outcome, first_byte_at)
        service, digest, wish = self.service.key, self.key.sha256, self.wish
        self._court.send(frames.Alone(service, digest, wish, report, self._was_counted))

    def _forget(self) -> None:
        self._court.forget(self._number)
        self._number = 0

    def _find(self, address: str) -> Link | None:
        link = self.service.links.get(address)
        if link is None:  # the decider may know it earlier
            self._court.refresh()
            link = self.service.links.get(address)
        return link

    def _overdue(self) -> ApiError:
        """What the decider would have said: engines had no room, or there is none."""
        seconds = jitter(_RETRY_SECONDS, self._court.chance)
        if self.service.has_eligible():
            return no_room("deadline", seconds)
        return no_engine(seconds)

    def _leaves_at(self) -> float:
        document, wish = self.service.document, self.wish
        longest, deadline = document.thresholds.max_queue_seconds, wish.deadline
        if not self.service.has_eligible():
            longest = max(longest, document.cold_start_queue_seconds)
            deadline = wish.own_deadline
        last = wish.arrived_at + longest
        return last if deadline is None else min(last, deadline)
