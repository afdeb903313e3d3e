"""The decider's end of workers' channels: claims of requests whose bytes are elsewhere."""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from quire_gateway.choosing.demand import Demand
from quire_gateway.errors import ApiError
from quire_gateway.serving.account import Account
from quire_gateway.serving.claim import Claim, Court
from quire_gateway.serving.directory import ServiceKey
from quire_gateway.serving.fleet import removed
from quire_gateway.serving.link import Way
from quire_gateway.workers import frames
from quire_gateway.workers.channel import Channel
from quire_gateway.workers.totals import WorkerTotals

_GATHER_SECONDS = 1.0
"""A worker that does not answer holds up no scrape for longer."""
_FAILED = ApiError(500, "The gateway failed on this request.", reason="internal")

_log = logging.getLogger(__name__)

WorkerChannel = Channel[frames.FromWorker]


class _Hosted:
    """A worker's request."""

    __slots__ = ("claim", "has_way")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.has_way = False


class _Worker:
    """One worker, while it is connected."""

    def __init__(self) -> None:
        self.claims: dict[int, _Hosted] = {}
        self.totals = WorkerTotals()
        self.answered = 0
        """The last inquiry that it answered."""


class Bench:
    """Decides for all workers."""

    def __init__(self, court: Court) -> None:
        self._court = court
        self._workers: dict[WorkerChannel, _Worker] = {}
        self._inquiry = 0
        self._has_answered = asyncio.Event()

    @property
    def num_workers(self) -> int:
        """Those that are connected."""
        return len(self._workers)

    def on_open(self, channel: WorkerChannel) -> None:
        """A process says that it is a worker: one of another user is none."""
        if not channel.is_own_user():
            channel.close()
            return
        self._workers[channel] = _Worker()
        channel.send(frames.Welcome(self._court.gateway.decode()))

    def on_lost(self, channel: WorkerChannel) -> None:
        """A worker is gone: what its requests held is free at once."""
        worker = self._workers.pop(channel, None)
        if worker is None:
            return
        for hosted in worker.claims.values():
            hosted.claim.cancel(was_sent=hosted.has_way)
        self._has_answered.set()

    def on_frame(self, channel: WorkerChannel, frame: frames.FromWorker) -> None:
        """Take what a worker says."""
        worker = self._workers.get(channel)
        if worker is None:
            return
        if isinstance(frame, frames.Ask):
            self._ask(channel, worker, frame)
        elif isinstance(frame, frames.Settled):
            self._settle(channel, worker, frame)
        elif isinstance(frame, frames.Left):
            hosted = worker.claims.pop(frame.number, None)
            if hosted is not None:
                hosted.claim.cancel(was_sent=frame.was_sent)
        elif isinstance(frame, frames.Alone):
            self._count_alone(frame)
        else:
            worker.totals.add(frame, self._court.metrics)
            worker.answered = max(worker.answered, frame.inquiry)
            self._has_answered.set()

    def tell_silent(self, service: ServiceKey, address: str) -> None:
        """An engine hangs: nobody waits for its answers any more."""
        for channel in self._workers:
            channel.send(frames.Silent(service, address))

    async def gather(self) -> None:
        """Have all that was told and counted up to now; of who is too slow, what is known."""
        self._inquiry += 1
        inquiry = self._inquiry
        for channel in self._workers:
            channel.send(frames.Count(inquiry))
        with suppress(TimeoutError):
            async with asyncio.timeout(_GATHER_SECONDS):
                while any(one.answered < inquiry for one in self._workers.values()):
                    self._has_answered.clear()
                    await self._has_answered.wait()

    def _ask(self, channel: WorkerChannel, worker: _Worker, frame: frames.Ask) -> None:
        service = self._court.fleet.services.get(frame.service)
        if service is None:
            channel.send(frames.refused(frame.number, removed()))
            return
        key = service.access.with_digest(frame.digest)
        tell = partial(self._tell, channel, frame.number)
        claim = self._court.claim(service, key, frame.wish, tell)
        worker.claims[frame.number] = _Hosted(claim)
        try:
            way = claim.open()
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._tell(channel, frame.number, error)
        else:
            if way is not None:
                self._tell(channel, frame.number, way)

    def _settle(self, channel: WorkerChannel, worker: _Worker, frame: frames.Settled) -> None:
        hosted = worker.claims.get(frame.number)
        if hosted is None:
            return
        hosted.has_way = False
        outcome = frames.outcome_of(frame.report)
        if outcome.is_over:
            del worker.claims[frame.number]
        try:
            way = hosted.claim.settle(outcome, frame.report.first_byte_at)
        except Exception as error:  # noqa: BLE001 - one request must not end all others
            self._tell(channel, frame.number, error)
        else:
            if way is not None:
                self._tell(channel, frame.number, way)

    def _tell(self, channel: WorkerChannel, number: int, answer: Way | Exception) -> None:
        worker = self._workers.get(channel)
        hosted = worker.claims.get(number) if worker is not None else None
        if worker is None or hosted is None:
            return
        if isinstance(answer, Way):
            hosted.has_way = True
            channel.send(
                frames.Go(
                    number,
                    answer.link.address,
                    answer.counter,
                    answer.holds_room,
                    answer.first_byte_seconds,
                    answer.is_unpromised,
                )
            )
            return
        del worker.claims[number]
        if not isinstance(answer, ApiError):
            _log.error("a request failed unexpectedly", exc_info=answer)
            hosted.claim.cancel(was_sent=False)
            answer = _FAILED
        channel.send(frames.refused(number, answer))

    def _count_alone(self, frame: frames.Alone) -> None:
        """Count a request that nobody decided, or another decider."""
        court, wish = self._court, frame.wish
        service = court.fleet.services.get(frame.service)
        if service is None:
            return
        demand = Demand(
            num_prompt_tokens=wish.num_prompt_tokens,
            max_tokens=wish.max_tokens,
            survival=service.survival,
            num_sequences=wish.num_sequences,
            is_background=wish.is_background,
        )
        key = service.access.with_digest(frame.digest)
        account = Account(service, key, wish, demand, court.metrics)
        now = court.clock()
        if not frame.was_counted:
            account.arrive()
        account.charge(now)
        account.close(frames.outcome_of(frame.report), frame.report.first_byte_at, now)
